"""One submission: its record once there is one; before, where it stands, live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lowbit_ray.errors import LedgerError
from lowbit_ray.index import Standing
from lowbit_ray.progress import start_log, start_log_names
from lowbit_ray.records import Record
from lowbit_ray.report.steps import log_title, step_title
from lowbit_ray.report.view import view_of
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.pages.board import points_of
from lowbit_ray.service.pages.site import frame, part
from lowbit_ray.service.shown import find, position, progress, record_of
from lowbit_ray.service.submissions import SubmissionId
from lowbit_ray.service.views import UnfinishedView, unfinished
from lowbit_ray.service.who import Anybody, may_read_logs
from lowbit_ray.stages.context import StepTime, step_times
from lowbit_ray.submission import IN_TIME

__all__ = ["router"]

router = APIRouter()

BESIDE = 40
"""Other submissions in a record's picture at most."""


@dataclass(frozen=True, slots=True)
class Log:
    """The end of a start-up log."""

    name: str
    title: str
    text: str


@router.get("/submissions/{id}")
async def submission(id: SubmissionId, desk: TheDesk, person: Anybody) -> Response:  # noqa: A002
    """The whole page."""
    standing = await find(desk, id, person)
    own = may_read_logs(person, standing.submission.participant)
    logs = await run_in_threadpool(_logs, desk, id) if own else None
    if standing.summary is None:
        body = part("unfinished.html", **await _standing(desk, standing), logs=logs)
    else:
        body = await _finished(desk, standing, logs)
    title = f"{standing.submission.method} · {standing.submission.task_id}"
    live = standing.summary is None and standing.state.status != "cancelled"
    here = f"/board/{standing.submission.task_id}"
    return frame(desk, person, title, body, here=here, within=True, live=live)


@router.get("/submissions/{id}/live")
async def live(id: SubmissionId, desk: TheDesk, person: Anybody) -> Response:  # noqa: A002
    """The part of an unfinished submission's page that changes; the page itself where it is finished."""
    standing = await find(desk, id, person)
    if standing.summary is not None:
        return RedirectResponse(f"/submissions/{id}", 303)
    text = part("live.html", **await _standing(desk, standing))
    return HTMLResponse(text, headers={"Cache-Control": "no-store"})


async def _standing(desk: Desk, standing: Standing) -> dict[str, object]:
    view: UnfinishedView = unfinished(standing, position(desk, standing.id), await progress(desk, standing))
    steps = await run_in_threadpool(_steps, desk, standing.id)
    waiting = [other for other in desk.index.waiting() if other.submission.task_id == view.task_id]
    return {
        "view": view,
        "stages": sorted(view.stages, key=lambda stage: IN_TIME.index(stage.name)),
        "attempt": standing.lease.attempt + 1 if standing.lease else None,
        "step": step_title(view.progress.step) if view.progress else "",
        "steps": [(step_title(step.name), step.seconds) for step in steps],
        "waiting": len(waiting),
    }


async def _finished(desk: Desk, standing: Standing, logs: Sequence[Log] | None) -> Markup:
    record = await record_of(desk, standing)
    if logs is not None:
        return _record_body(desk, standing, record, logs)
    return desk.per_verdict(
        f"submission page {standing.id}", lambda: _record_body(desk, standing, record, None)
    )


def _record_body(desk: Desk, standing: Standing, record: Record, logs: Sequence[Log] | None) -> Markup:
    task = desk.tasks.get(record.task_id)
    others = desk.index.board(record.task_id, desk.rules) if task else []
    beside = points_of([row for row in others if row.submission != record.id], kind="other")[:BESIDE]
    return part(
        "submission.html",
        record=record,
        rules=desk.rules,
        view=view_of(record, desk.rules, task, beside=beside),
        flag=standing.flag,
        row=next((row for row in others if row.submission == record.id), None),
        logs=logs,
    )


def _steps(desk: Desk, name: str) -> Sequence[StepTime]:
    try:
        return step_times(desk.ledger, name)
    except (
        LedgerError,
        ValueError,
    ):  # the store is away, or a step is of another version: the rest still shows
        return ()


def _logs(desk: Desk, name: str) -> list[Log]:
    texts = ((log, start_log(desk.ledger, name, log)) for log in start_log_names(desk.ledger, name))
    return [Log(log, log_title(log), text) for log, text in texts if text is not None]
