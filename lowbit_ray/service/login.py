"""Showing a browser's token: a cookie that scripts cannot read, other sites cannot send, and that writes nothing."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from lowbit_ray.service.desk import TheDesk
from lowbit_ray.service.limits import seconds
from lowbit_ray.service.problems import Refusal
from lowbit_ray.service.who import COOKIE

__all__ = ["page_after", "router"]

router = APIRouter(include_in_schema=False)

DAYS = 30
PAGE = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){1,4}")
"""A page of this service: whoever writes a link to the form cannot lead elsewhere with it."""


@router.post("/login")
async def login(request: Request, desk: TheDesk) -> Response:
    """Takes the form's `token`; to the page of its `next` with the cookie, or 401."""
    address = request.client.host if request.client else "?"
    wait = desk.wrong_tokens.wait_s(address)
    if wait:
        raise Refusal(429, "Too many wrong tokens", headers={"Retry-After": seconds(wait)})
    form = parse_qs((await request.body()).decode(errors="replace"), max_num_fields=4)
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
        secure=request.url.scheme == "https",
    )
    return answer


def page_after(path: str) -> str:
    """Where signing in leads: the page at `path`, the first one where that is none of ours."""
    return path if PAGE.fullmatch(path) else "/"


@router.post("/logout")
async def logout() -> Response:
    """Forgets the cookie."""
    answer = RedirectResponse("/", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer
