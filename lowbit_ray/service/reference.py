"""What is the same for everybody: the rules, the tasks, who one is."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from lowbit_ray.rules import Rules, Workload
from lowbit_ray.service.desk import TheDesk
from lowbit_ray.service.problems import problems
from lowbit_ray.service.quota import SCORED, Quota, quotas_of
from lowbit_ray.service.versioned import UNCHANGED, Versioned, answer
from lowbit_ray.service.views import Shown
from lowbit_ray.service.who import Somebody, anybody
from lowbit_ray.tasks import Task

__all__ = ["TaskView", "router", "task_view"]

router = APIRouter(
    prefix="/api", tags=["reference"], dependencies=[Depends(anybody)], responses=problems(401, 429)
)


class TaskView(Shown):
    """A task as its participants need it; where its hidden material comes from is not said."""

    id: str
    title: str
    source: str
    """The BF16 source, a hub repository."""
    revision: str | None
    """Its commit."""
    workloads: dict[str, Workload]
    speed_floor: float
    """Least speed gain, less its error."""
    kl_ceiling: float
    """Nats per token."""
    domains: tuple[str, ...]
    scored: int
    """Scored submissions a participant."""
    dev_per_day: int
    checkpoint_gib: float
    """Largest checkpoint accepted."""
    pod: str
    """What an evaluation holds."""


def task_view(task: Task, rules: Rules) -> TaskView:
    """What is public of a task."""
    gpus = task.pod.tensor_parallel
    return TaskView(
        id=task.id,
        title=task.title,
        source=task.anchor.repository,
        revision=task.anchor.revision,
        workloads=task.timed_workloads(rules),
        speed_floor=task.floor(rules),
        kl_ceiling=rules.rules.kl_ceiling,
        domains=tuple(task.accuracy.domains),
        scored=rules.submission.scored_per_task.get(task.id, SCORED),
        dev_per_day=task.limits.dev_per_day,
        checkpoint_gib=task.limits.checkpoint_gib,
        pod=f"{gpus} × {task.pod.accelerator or 'GPU'}" if gpus else f"{task.pod.cpus} CPU cores",
    )


@router.get(
    "/rules", summary="The rules in force, as they are published", response_model=Rules, responses=UNCHANGED
)
async def rules(desk: TheDesk, request: Request) -> Response:
    """The rules file itself."""
    return answer(request, _rules_json(desk.settings.rules))


@router.get("/tasks", summary="The tasks")
async def tasks(desk: TheDesk) -> list[TaskView]:
    """Sources, workloads, limits."""
    return [task_view(task, desk.rules) for task in desk.tasks.values()]


class Me(Shown):
    """Who one is, and what one has left."""

    name: str
    role: str
    quotas: tuple[Quota, ...]


@router.get("/me", summary="Who one is", responses=problems(503))
async def me(desk: TheDesk, person: Somebody) -> Me:
    """Name, role, and the quotas of every task."""

    tasks = desk.tasks.values()
    found = await run_in_threadpool(quotas_of, desk.ledger, desk.index.get, person, tasks, desk.rules)
    return Me(name=person.name, role=person.role, quotas=found.quotas)


@cache
def _rules_json(path: Path) -> Versioned:
    parsed: Any = json.loads(path.read_text())
    return Versioned.of(json.dumps(parsed, ensure_ascii=False))
