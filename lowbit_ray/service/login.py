"""Showing a browser's token: a cookie that scripts cannot read, other sites cannot send, and that writes nothing.

Another site's form can neither sign a visitor in as somebody else nor out.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from lowbit_ray.service.desk import TheDesk
from lowbit_ray.service.limits import seconds
from lowbit_ray.service.problems import Refusal
from lowbit_ray.service.visitor import visitor
from lowbit_ray.service.who import COOKIE

__all__ = ["page_after", "router"]

router = APIRouter(include_in_schema=False)

DAYS = 30
PAGE = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){1,4}")
"""A page of this service: whoever writes a link to the form cannot lead elsewhere with it."""


@router.post("/login")
async def login(request: Request, desk: TheDesk) -> Response:
    """Takes the form's `token`; to the page of its `next` with the cookie, or 401."""
    _own_form(request)
    address = visitor(request, desk.settings.proxies)
    wait = desk.wrong_tokens.wait_s(address)
    if wait:
        raise Refusal(429, "Too many wrong tokens", headers={"Retry-After": seconds(wait)})
    try:
        form = parse_qs((await request.body()).decode(errors="replace"), max_num_fields=4)
    except ValueError:
        raise Refusal(422, "The form is not valid", field="token") from None
    token = form.get("token", [""])[0].strip()
    if await run_in_threadpool(desk.roster.find, token) is None:
        desk.wrong_tokens.take(address)
        raise Refusal(401, "The token is not valid")
    answer = RedirectResponse(page_after(form.get("next", [""])[0]), 303)
    answer.set_cookie(
        COOKIE,
        token,
        max_age=DAYS * 86400,
        httponly=True,
        samesite="strict",
        secure="https" in {request.url.scheme, request.headers.get("x-forwarded-proto")},
    )
    return answer


def page_after(path: str) -> str:
    """Where signing in leads: the page at `path`, the first one where that is none of ours."""
    return path if PAGE.fullmatch(path) else "/"


@router.post("/logout")
async def logout(request: Request) -> Response:
    """Forgets the cookie."""
    _own_form(request)
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _own_form(request: Request) -> None:
    """403 for a form of another site, by what browsers say of it; programs say nothing, and mean what they send."""
    site = request.headers.get("sec-fetch-site")
    if site is None:  # browsers say it where the connection is trusted alone
        origin = request.headers.get("origin")
        own = origin is None or origin.partition("://")[2] == request.headers.get("host")
        site = "same-origin" if own else "cross-site"
    if site not in {"same-origin", "none"}:
        raise Refusal(403, "The form is not of this site")
