"""Following one submission: server-sent events, and the start-up logs of its engines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from lowbit_ray.index import Standing
from lowbit_ray.progress import Progress, start_log, start_log_names
from lowbit_ray.report.steps import log_title
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.limits import seconds
from lowbit_ray.service.problems import Refusal, problems
from lowbit_ray.service.shown import find, position, progress, steps
from lowbit_ray.service.submissions import SubmissionId
from lowbit_ray.service.views import Shown
from lowbit_ray.service.visitor import visitor
from lowbit_ray.service.who import Anybody, Somebody, may_read_logs

__all__ = ["Moment", "router"]

router = APIRouter(prefix="/api/submissions", tags=["following"], responses=problems(401, 404, 422, 429, 503))

LOOK_S = 0.5
HEARTBEAT_S = 15.0
LONGEST_S = 3600.0
"""Then the stream ends; a reader connects again by itself."""
LogName = Annotated[str, InPath(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$", examples=["timed-0"])]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`state` with each change, `log` with a new log of one's own, `end` with the verdict",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'event: state\ndata: {"status": "running", "stage": "contract"}\n\n',
            }
        },
    }
}


class Moment(Shown):
    """Where a submission stands, as an event says it."""

    status: str
    stage: str | None
    queue_position: int | None
    """From 1, while it waits."""
    steps: tuple[str, ...] = ()
    """Names of the steps that are done."""
    progress: Progress | None
    score: float | None = None
    score_se: float | None = None
    qualified: bool | None = None
    """Whether contract, engine rules and all gates are kept; None before the verdict."""
    reason: str | None = None
    """Why it did not qualify, or has no score."""


@router.get("/{id}/events", summary="Follow", response_class=StreamingResponse, responses=STREAM)
async def events(id: SubmissionId, desk: TheDesk, person: Anybody, request: Request) -> StreamingResponse:  # noqa: A002
    """Server-sent events until there is a verdict."""
    standing = await find(desk, id, person)
    key = f"person {person.name}" if person else f"address {visitor(request, desk.settings.proxies)}"
    _room(desk, request.app.state.followers, key)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    own = may_read_logs(person, standing.submission.participant)
    stream = _follow(desk, standing, own, request.app.state.followers, key)
    return StreamingResponse(stream, headers=headers, media_type="text/event-stream")


@router.get("/{id}/logs", summary="Names of the logs", responses=problems(403))
async def logs(id: SubmissionId, desk: TheDesk, person: Somebody) -> list[str]:  # noqa: A002
    """Logs of the starts of one's own engines."""
    standing = await find(desk, id, person)
    if not may_read_logs(person, standing.submission.participant):
        raise Refusal(403, "The submission is somebody else's")
    return await run_in_threadpool(start_log_names, desk.ledger, id)


@router.get("/{id}/logs/{name}", summary="One log", response_class=PlainTextResponse, responses=problems(403))
async def log(id: SubmissionId, name: LogName, desk: TheDesk, person: Somebody) -> PlainTextResponse:  # noqa: A002
    """The end of a start-up log."""
    standing = await find(desk, id, person)
    if not may_read_logs(person, standing.submission.participant):
        raise Refusal(403, "The submission is somebody else's")
    text = await run_in_threadpool(start_log, desk.ledger, id, name)
    if text is None:
        raise Refusal(404, "No such log", field="name", expected="a name of GET /api/submissions/{id}/logs")
    return PlainTextResponse(text)


async def _follow(
    desk: Desk, standing: Standing, own: bool, followers: Counter[str], key: str
) -> AsyncIterator[str]:
    with _counted(followers, key):
        began, told, said, seen = time.monotonic(), time.monotonic(), "", set[str]()
        while time.monotonic() - began < LONGEST_S:
            standing = desk.index.get(standing.id) or standing
            moment = await _moment(desk, standing)
            if own and standing.lease is not None:
                for name in await run_in_threadpool(start_log_names, desk.ledger, standing.id):
                    if name not in seen:
                        seen.add(name)
                        text = await run_in_threadpool(start_log, desk.ledger, standing.id, name)
                        log_of = {"name": name, "title": log_title(name), "text": text}
                        yield _event("log", json.dumps(log_of))
            if moment != said:
                said, told = moment, time.monotonic()
                yield _event("state", moment)
            elif time.monotonic() - told > HEARTBEAT_S:
                told = time.monotonic()
                yield ": still here\n\n"
            if standing.over or standing.state.status == "cancelled":
                yield _event("end", moment)
                return
            await asyncio.sleep(LOOK_S)


async def _moment(desk: Desk, standing: Standing) -> str:
    state, summary = standing.state, standing.summary
    return Moment(
        status=state.status,
        stage=state.stage,
        queue_position=position(desk, standing.id) if state.status == "waiting" else None,
        steps=() if standing.lease is None else await steps(desk, standing),
        progress=await progress(desk, standing),
        score=summary.score if summary else None,
        score_se=summary.score_se if summary else None,
        qualified=summary.qualified if summary else None,
        reason=summary.reason if summary else None,
    ).model_dump_json()


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"  # JSON has no line breaks


def _room(desk: Desk, followers: Counter[str], key: str) -> None:
    if followers[key] >= desk.limits.followers or followers.total() >= desk.limits.all_followers:
        raise Refusal(429, "Too many event streams", headers={"Retry-After": seconds(30)})


@contextlib.contextmanager
def _counted(followers: Counter[str], key: str) -> Iterator[None]:
    followers[key] += 1
    try:
        yield
    finally:
        followers[key] -= 1
        if followers[key] <= 0:
            del followers[key]
