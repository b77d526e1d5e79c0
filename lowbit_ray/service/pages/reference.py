"""The rules as their file has them, and how a score comes about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from markupsafe import Markup
from starlette.responses import HTMLResponse

from lowbit_ray.board import Row
from lowbit_ray.conduct import RULES
from lowbit_ray.rules import Rules
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.pages.site import frame, part
from lowbit_ray.service.reference import task_view
from lowbit_ray.service.who import Anybody

__all__ = ["RulesPart", "router", "rules_parts"]

router = APIRouter()

TITLES = {
    "version": "Version",
    "rules": "Constants of the score",
    "vllm": "The engine's release",
    "voided_tasks": "Accuracy domains left out",
    "workloads": "Workloads",
    "engine_flags": "vLLM's flags on the checkpoint track",
    "gate": "Gates",
    "lowbit_score": "The score",
    "perplexity": "Perplexity",
    "engine_track": "The engine track",
    "contract": "The contract",
    "cost": "Cost",
    "precision": "How precision is written",
    "submission": "Submissions",
    "engine": "Engine rules",
}


@dataclass(frozen=True, slots=True)
class RulesPart:
    """One key of the rules file."""

    key: str
    title: str
    value: Any
    """As parsed: text, number, or an object."""
    table: bool
    """Whether it is a table: objects with the same keys."""


@router.get("/rules")
async def rules(desk: TheDesk, person: Anybody) -> HTMLResponse:
    """Every key of the rules file in force."""
    body = desk.per_verdict("rules page", lambda: part("rules.html", parts=rules_parts(desk.rules)))
    return frame(desk, person, f"Rules, version {desk.rules.version}", body, here="/rules")


@router.get("/scoring")
async def scoring(desk: TheDesk, person: Anybody) -> HTMLResponse:
    """The formulas, with the rules' constants and the leading submission worked through."""
    body = desk.per_verdict("scoring page", lambda: _scoring(desk))
    return frame(desk, person, "How it is scored", body, here="/scoring")


def rules_parts(rules: Rules) -> list[RulesPart]:
    """The rules file's keys in its order; `workload` repeats the first of `workloads`."""
    values = rules.model_dump(mode="json", by_alias=True, exclude={"workload"})
    return [
        RulesPart(key=key, title=TITLES.get(key, key), value=value, table=_is_table(value))
        for key, value in values.items()
    ]


def _is_table(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) < 2:
        return False
    rows = list(value.values())
    return all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows)


def _scoring(desk: Desk) -> Markup:
    task, row = _leader(desk)
    return part(
        "scoring.html",
        rules=desk.rules,
        limits=desk.rules.engine.timed_output_audit,
        tasks=[task_view(task, desk.rules) for task in desk.tasks.values()],
        audits={name: task.gap_limit(desk.rules) for name, task in desk.tasks.items()},
        conduct=RULES,
        leader_task=task,
        leader=row,
    )


def _leader(desk: Desk) -> tuple[str, Row | None]:
    """The first ranked row there is, of the boards in order."""
    for task in desk.tasks:
        for row in desk.index.board(task, desk.rules):
            if row.rank == 1 and row.efficiency_gain is not None:
                return task, row
    return "", None
