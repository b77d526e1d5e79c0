"""Errors as pages, for whoever reads pages: the same problem, in HTML where a browser asked for HTML."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowbit_ray.service.pages.site import frame, part
from lowbit_ray.service.problems import MEDIA_TYPE, Problem
from lowbit_ray.service.who import COOKIE

__all__ = ["PageProblems"]

log = logging.getLogger(__name__)

API = ("/api", "/healthz", "/readyz", "/metrics", "/static")
"""Whoever asks here reads JSON or text."""
WORDS = {
    401: "Sign in with a token that an organizer issued, or go on without one: scored submissions are public.",
    403: "Somebody else may do this, or the form came from another site.",
    404: "The address may be mistyped, or it is a dev submission, which its participant alone may see.",
    405: "This address does not take such a request.",
    413: "What was sent is too large.",
    422: "Some part of the address or the form is not as expected.",
    429: "Please wait a little, then load the page again.",
    500: "The fault is ours and has been noted.",
    503: "Nothing that was accepted is lost. Please load the page again in a moment.",
}


class PageProblems:
    """Turns the problems of an application into pages where the request prefers HTML."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _wants_page(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        begun = False
        body = bytearray()

        async def turned(message: Message) -> None:
            nonlocal start, begun
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
                return
            if start is None:
                begun = True
                await send(message)
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body", False):
                begun = True
                problem = Problem.model_validate_json(bytes(body))
                await _page(problem, start["headers"], send, after=_hidden_page(scope, problem))

        try:
            await self._app(scope, receive, turned)
        except Exception:  # a reader gets a page whatever went wrong, and the log the traceback
            if begun:
                raise  # half a page is out already
            log.exception("%s %s", scope["method"], scope["path"])
            await _page(Problem(title="Something went wrong", status=500), [], send)


def _wants_page(scope: Scope) -> bool:
    accepted = Headers(scope=scope).get("accept", "")
    return "text/html" in accepted and not scope["path"].startswith(API)


def _is_problem(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


def _hidden_page(scope: Scope, problem: Problem) -> str:
    """The page that signing in may show; empty where it would not."""
    path: str = scope["path"]
    signed_in = f"{COOKIE}=" in Headers(scope=scope).get("cookie", "")
    return path if problem.status == 404 and path.startswith("/submissions/") and not signed_in else ""


async def _page(
    problem: Problem, given: Iterable[tuple[bytes, bytes]], send: Send, *, after: str = ""
) -> None:
    """The problem as a page, with the headers that were given with it."""
    inner = part("problem.html", problem=problem, words=WORDS.get(problem.status, ""), after=after)
    page = frame(None, None, f"{problem.status}: {problem.title}", inner, status=problem.status)
    headers = MutableHeaders(raw=list(given))
    headers["content-type"] = page.headers["content-type"]
    headers["content-length"] = str(len(page.body))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers.raw})
    await send({"type": "http.response.body", "body": bytes(page.body)})
