"""Errors as pages, for whoever reads pages: the same problem, in HTML where a browser asked for HTML."""

from __future__ import annotations

import json

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowbit_ray.service.pages.site import frame, part
from lowbit_ray.service.problems import MEDIA_TYPE, Problem

__all__ = ["PageProblems"]

API = ("/api", "/healthz", "/readyz", "/metrics", "/static")
"""Whoever asks here reads JSON or text."""
WORDS = {
    401: "Sign in with a token that an organizer issued, or go on without one: scored submissions are public.",
    404: "The address may be mistyped, or it is a dev submission, which its participant alone may see.",
    405: "This address does not take such a request.",
    413: "What was sent is too large.",
    422: "Some part of the address or the form is not as expected.",
    429: "Please wait a little, then load the page again.",
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
        body = bytearray()

        async def turned(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
                return
            if start is None:
                await send(message)
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body", False):
                await _send_page(start, bytes(body), send)

        await self._app(scope, receive, turned)


def _wants_page(scope: Scope) -> bool:
    accepted = Headers(scope=scope).get("accept", "")
    return "text/html" in accepted and not scope["path"].startswith(API)


def _is_problem(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


async def _send_page(start: Message, body: bytes, send: Send) -> None:
    problem = Problem.model_validate(json.loads(body))
    status = problem.status
    inner = part("problem.html", problem=problem, words=WORDS.get(status, ""))
    page = frame(None, None, f"{status}: {problem.title}", inner, status=status)
    headers = MutableHeaders(raw=list(start["headers"]))
    headers["content-type"] = page.headers["content-type"]
    headers["content-length"] = str(len(page.body))
    await send({**start, "headers": headers.raw})
    await send({"type": "http.response.body", "body": bytes(page.body)})
