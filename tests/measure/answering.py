"""A server in the test's own loop, for answers that no engine would give."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from lowbit_ray.measure.endpoint import Endpoint

__all__ = ["answering", "streaming"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[Endpoint]:
    """`handler` answers whatever is asked."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield Endpoint(f"http://{host}:{port}", "m")
    finally:
        await runner.cleanup()


def streaming(*events: str) -> Handler:
    """A handler that streams these events to everybody."""
    body = "".join(f"data: {event}\n\n" for event in events)

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body, content_type="text/event-stream")

    return handler
