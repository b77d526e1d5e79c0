"""For those who run the service: alive, ready, and figures for Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.responses import Response

from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.traffic import metric_lines
from lowbit_ray.service.views import Shown

__all__ = ["router"]

router = APIRouter(tags=["operation"])

STALE_S = 30.0
"""An index older than this is not ready."""


class Health(Shown):
    """How the service is."""

    status: str
    submissions: int
    index_age_s: float | None
    """Seconds since the ledger last answered; None before its first answer."""
    reason: str | None = None


READY: dict[int | str, dict[str, Any]] = {
    503: {
        "model": Health,
        "description": "The index is not there yet, or the store has been away for too long",
    }
}


@router.get("/healthz", summary="Whether the process is alive")
async def healthz(desk: TheDesk) -> Health:
    """Always 200 while the process answers."""
    return _health(desk, "alive")


@router.get("/readyz", summary="Whether answers are up to date", responses=READY, response_model=Health)
async def readyz(desk: TheDesk) -> Response:
    """503 before the index has been built, and while the store has not answered for half a minute."""
    age = _age_s(desk)
    ready = age is not None and age < STALE_S
    health = _health(desk, "ready" if ready else "not ready")
    return JSONResponse(health.model_dump(mode="json"), 200 if ready else 503)


@router.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
async def metrics(desk: TheDesk, request: Request) -> PlainTextResponse:
    """Requests by route and status, their durations, submissions by state, the age of the index."""
    states = Counter(standing.state.status for standing in desk.index.standings.values())
    age = _age_s(desk)
    lines = [
        *request.app.state.traffic.lines(),
        *metric_lines("lowbit_submissions", "gauge", dict(sorted(states.items())), "state"),
        *metric_lines("lowbit_index_age_seconds", "gauge", {"": float("inf") if age is None else age}),
        *metric_lines("lowbit_index_unreadable", "gauge", {"": len(desk.index.unreadable)}),
        *metric_lines("lowbit_uptime_seconds", "gauge", {"": time.monotonic() - desk.started}),
    ]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _age_s(desk: Desk) -> float | None:
    at = desk.index.refreshed_at
    return None if at is None else (datetime.now(UTC) - at).total_seconds()


def _health(desk: Desk, status: str) -> Health:
    age = _age_s(desk)
    return Health(
        status=status,
        submissions=len(desk.index.standings),
        index_age_s=None if age is None else round(age, 1),
        reason="the store does not answer" if desk.behind else None,
    )
