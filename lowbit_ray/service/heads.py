"""HEAD of whatever can be read: the answer of GET without its body, for those who check links or look for a change."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Heads"]

STREAMS = "/events"
"""They have no end to wait for."""
FILES = "/static/"
"""They know by themselves."""


class Heads:
    """Asks the application for the whole answer, and sends its head."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or _answers_itself(scope["path"]):
            await self._app(scope, receive, send)
            return

        async def bare(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, bare)


def _answers_itself(path: str) -> bool:
    return path.endswith(STREAMS) or path.startswith(FILES)
