"""What the API shows of a submission: the public record once there is one, the same keys before."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Literal

from lowbit_ray.index import Cancellation, Flag, Standing
from lowbit_ray.migration import migrate
from lowbit_ray.progress import Progress
from lowbit_ray.records import Record, Solution
from lowbit_ray.report.advice import Advice, advice_on
from lowbit_ray.rules import _Described
from lowbit_ray.submission import IN_TIME, STAGES

__all__ = [
    "FinishedView",
    "Listed",
    "Page",
    "Progress",
    "UnfinishedView",
    "finished_json",
    "listed",
    "unfinished",
]

Status = Literal["waiting", "running", "done", "rejected", "failed", "cancelled"]


class Shown(_Described):
    """What the service shows of its own."""


class Listed(Shown):
    """A submission in a list."""

    id: str
    participant: str
    agent: str | None
    task_id: str
    track: Literal["checkpoint", "engine"]
    split: Literal["dev", "test"]
    partition: Literal["participant", "reference"]
    checkpoint: str
    method: str
    status: Status
    stage: str | None
    """The stage at work, while it runs."""
    queue_position: int | None
    """From 1, while it waits."""
    created_at: datetime
    updated_at: datetime | None
    score: float | None
    """S; 0 where it was rejected, None without a verdict."""
    score_se: float | None
    """Its standard error."""
    qualified: bool
    reason: str | None
    """Why it did not qualify, or has no score."""
    flagged: str | None
    """An organizer's reason why it is off the board."""


class Page(Shown):
    """Some submissions, the newest first."""

    items: tuple[Listed, ...]
    next: str | None
    """The cursor of the next page; None on the last."""


class StageView(Shown):
    name: Literal["build", "contract", "quality", "efficiency", "score"]
    status: Literal["waiting", "running", "done", "failed"]


class UnfinishedView(Shown):
    """A submission without a verdict yet; the keys of a record, and where it stands."""

    agent: str | None
    created_at: datetime
    error: str | None = None
    id: str
    participant: str
    partition: Literal["participant", "reference"]
    result: None = None
    runner: Literal["ray"] = "ray"
    solution: Solution
    split: Literal["dev", "test"]
    stages: tuple[StageView, ...]
    status: Literal["waiting", "running", "cancelled"]
    task_id: str
    track: Literal["checkpoint", "engine"]
    updated_at: datetime
    queue_position: int | None
    """From 1, while it waits."""
    attempts: int
    """Begun so far; each but the last ended by a fault of ours, free of charge."""
    progress: Progress | None
    cancelled: Cancellation | None
    flag: Flag | None = None


class FinishedView(Record):
    """A record, with whether an organizer flagged it, and what its participant can change."""

    flag: Flag | None = None
    advice: tuple[Advice, ...] = ()
    """What the refusal, the failure or each failed gate means; empty where nothing went wrong."""


def listed(standing: Standing, position: int | None) -> Listed:
    """A submission as lists show it."""
    one, summary = standing.submission, standing.summary
    return Listed(
        id=one.id,
        participant=one.participant,
        agent=one.agent,
        task_id=one.task_id,
        track=one.track,
        split=one.split,
        partition=one.partition,
        checkpoint=str(one.checkpoint),
        method=one.method,
        status=standing.state.status,
        stage=standing.state.stage,
        queue_position=position if standing.state.status == "waiting" else None,
        created_at=one.created_at,
        updated_at=summary.updated_at if summary else None,
        score=summary.score if summary else None,
        score_se=summary.score_se if summary else None,
        qualified=summary is not None and summary.qualified,
        reason=summary.reason if summary else None,
        flagged=standing.flag.reason if standing.flag else None,
    )


def unfinished(standing: Standing, position: int | None, progress: Progress | None) -> UnfinishedView:
    """A submission without a record."""
    one, state, lease = standing.submission, standing.state, standing.lease
    stopped = standing.cancelled
    moments = [one.created_at, *([lease.renewed_at] if lease else []), *([stopped.at] if stopped else [])]
    return UnfinishedView.model_validate(
        {
            "agent": one.agent,
            "created_at": one.created_at.replace(microsecond=0),
            "id": one.id,
            "participant": one.participant,
            "partition": one.partition,
            "solution": Solution(
                checkpoint=str(one.checkpoint),
                declared_precision=one.declared_precision is not None,
                detected_precision=None,
                method=one.method,
                precision=one.declared_precision,
            ),
            "split": one.split,
            "stages": _stages(state.stage if state.status == "running" else None),
            "status": state.status,
            "task_id": one.task_id,
            "track": one.track,
            "updated_at": max(moments).replace(microsecond=0),
            "queue_position": position if state.status == "waiting" else None,
            "attempts": lease.attempt + 1 if lease else 0,
            "progress": progress if state.status == "running" else None,
            "cancelled": stopped,
            "flag": standing.flag,
        }
    )


def finished_json(data: bytes, flag: Flag | None) -> bytes:
    """A stored record as the API answers it."""
    record = migrate(json.loads(data))
    record["flag"] = None if flag is None else flag.model_dump(mode="json")
    record["advice"] = [advice.model_dump() for advice in advice_on(record)]
    return json.dumps(record, ensure_ascii=False, sort_keys=True).encode()


def _stages(at_work: str | None) -> list[StageView]:
    """In the order of records."""
    here = IN_TIME.index(at_work) if at_work in IN_TIME else -1
    views = {
        name: "waiting" if place > here else "running" if place == here else "done"
        for place, name in enumerate(IN_TIME)
    }
    return [StageView.model_validate({"name": name, "status": views[name]}) for name in STAGES]
