"""The board of a task, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi import Path as InPath
from starlette.responses import Response

from lowbit_ray.board import Row
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.problems import Refusal, problems
from lowbit_ray.service.versioned import UNCHANGED, Versioned, answer
from lowbit_ray.service.views import Shown
from lowbit_ray.service.who import anybody

__all__ = ["Board", "TaskId", "router"]

router = APIRouter(
    prefix="/api/board",
    tags=["board"],
    dependencies=[Depends(anybody)],
    responses=problems(401, 404, 422, 429),
)

TaskId = Annotated[str, InPath(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$", examples=["qwen3-8b"])]
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
CSV: dict[int | str, dict[str, Any]] = {
    **UNCHANGED,
    200: UNCHANGED[200] | {"content": {"text/csv": {"schema": {"type": "string"}}}},
}


class Board(Shown):
    """A task's board, best first."""

    task: str
    rules_version: str
    rows: tuple[Row, ...]


@router.get("/{task}.csv", summary="The board as CSV", response_class=Response, responses=CSV)
async def board_csv(task: TaskId, desk: TheDesk, request: Request) -> Response:
    """One row a participant, the columns of the JSON."""
    _known(desk, task)
    rows = desk.index.board(task, desk.rules)
    content = desk.per_verdict(f"board.csv {task}", lambda: Versioned.of(_csv(rows)))
    name = f'attachment; filename="board-{task}.csv"'
    return answer(request, content, "text/csv; charset=utf-8", {"Content-Disposition": name})


@router.get("/{task}", summary="The board", response_model=Board, responses=UNCHANGED)
async def board(task: TaskId, desk: TheDesk, request: Request) -> Response:
    """The last finished scored submission of each participant, by its score discounted by cost; references beside."""
    _known(desk, task)
    content = desk.per_verdict(f"board {task}", lambda: Versioned.of(_board(desk, task).model_dump_json()))
    return answer(request, content)


def _known(desk: Desk, task: str) -> None:
    if task not in desk.tasks:
        raise Refusal(404, "No such task", field="task", expected=f"one of {', '.join(desk.tasks)}")


def _board(desk: Desk, task: str) -> Board:
    rows = tuple(desk.index.board(task, desk.rules))
    return Board(task=task, rules_version=desk.rules.version, rows=rows)


def _csv(rows: list[Row]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(Row.model_fields))
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _inert(value) for name, value in row.model_dump(mode="json").items()})
    return file.getvalue()


def _inert(value: object) -> object:
    """A spreadsheet takes a cell that begins like a formula for one; participants choose their own words."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
