"""The application: routes, errors, headers, limits, and the index that follows the ledger while it runs.

`create_app` needs no Ray: uvicorn serves it in tests, Ray Serve in `deploy.py`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from lowbit_ray import __version__
from lowbit_ray.ledger import Ledger, open_ledger
from lowbit_ray.service import board, events, health, login, organizers, pages, reference, submissions
from lowbit_ray.service.desk import following, open_desk
from lowbit_ray.service.examples import describe
from lowbit_ray.service.headers import SecurityHeaders
from lowbit_ray.service.heads import Heads
from lowbit_ray.service.limits import BodyLimit, Limits
from lowbit_ray.service.problems import install_handlers
from lowbit_ray.service.traffic import Traffic
from lowbit_ray.settings import Settings, settings

__all__ = ["configured", "create_app"]

DESCRIPTION = """Submit a quantized checkpoint, follow its evaluation, compare it.

Whatever is public needs no token. Errors are problems (RFC 9457) that name the field. Times are UTC. What can be read
answers HEAD as well; boards, records and rules carry an `ETag`, and `If-None-Match` saves sending them again."""


def create_app(
    ledger: Ledger, configured: Settings, *, limits: Limits | None = None, follow_s: float = 1.0
) -> FastAPI:
    """The service over a ledger; `follow_s`: seconds between two looks at the ledger.

    Raises ConfigError where the rules or a task file is wrong, LedgerError where the store cannot be opened.
    """
    desk = open_desk(ledger, configured, limits or Limits())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with following(desk, follow_s):
            yield

    app = FastAPI(
        title="Lowbit arena",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.desk = desk
    app.state.traffic = traffic = Traffic()
    app.state.followers = Counter[str]()
    install_handlers(app)
    for part in (submissions, events, board, reference, organizers, health, login, pages):
        app.include_router(part.router)
    describe(app)
    if pages.STATIC.is_dir():
        app.mount("/static", StaticFiles(directory=pages.STATIC), name="static")
    app.add_middleware(BodyLimit, limits=desk.limits)
    app.add_middleware(pages.PageProblems)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(traffic.middleware)
    app.add_middleware(Heads)
    return app


def configured() -> FastAPI:
    """The service over the ledger of the settings: `uvicorn --factory lowbit_ray.service.app:configured`."""
    return create_app(open_ledger(settings().ledger), settings())
