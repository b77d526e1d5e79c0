"""The board of a task, with its picture."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse

from lowbit_ray.board import Row
from lowbit_ray.errors import LedgerError
from lowbit_ray.measure.noise_floor import floor_of
from lowbit_ray.report.floor import floor_words
from lowbit_ray.report.picture import Point, picture
from lowbit_ray.service.board import TaskId
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.pages.board_query import COLUMNS, BoardQuery
from lowbit_ray.service.pages.site import frame, part
from lowbit_ray.service.problems import Refusal
from lowbit_ray.service.reference import task_view
from lowbit_ray.service.shown import Memory
from lowbit_ray.service.who import Anybody
from lowbit_ray.stages.floor import read_runs

__all__ = ["board_body", "points_of", "router"]

router = APIRouter()

DRAWN = 200
"""Points of a picture at most, the best ones."""
KEPT_PAGES = 50
FLOORS: Memory[tuple[str, ...]] = Memory(most=64, fresh_s=60.0)


@router.get("/board/{task}")
async def board(task: TaskId, request: Request, desk: TheDesk, person: Anybody) -> HTMLResponse:
    """Sorted and filtered by the address's query."""
    if task not in desk.tasks:
        raise Refusal(404, "No such task", field="task", expected=f"one of {', '.join(desk.tasks)}")
    query = BoardQuery.read(request.query_params)
    floors = await FLOORS.get((id(desk), task), lambda: _floors(desk, task))
    if _recurs(desk, task, query):
        key = f"board page {task} {query} {floors}"
        body = desk.per_verdict(key, lambda: board_body(desk, task, query, floors))
    else:
        body = board_body(desk, task, query, floors)
    return frame(desk, person, f"Board of {desk.tasks[task].title}", body, here=f"/board/{task}")


def _recurs(desk: Desk, task: str, query: BoardQuery) -> bool:
    """Whether others will ask the same: what anybody can make up is not worth keeping."""
    known = desk.per_verdict(f"precisions {task}", lambda: _precisions(desk.index.board(task, desk.rules)))
    return not query.text and query.precision in {"", *known} and query.page <= KEPT_PAGES


def _precisions(rows: Sequence[Row]) -> list[str]:
    return sorted({row.precision for row in rows if row.precision})


def _floors(desk: Desk, task: str) -> tuple[str, ...]:
    """The task's noise floor in words, one line a device and release."""
    try:
        runs = read_runs(desk.ledger, task)
    except (LedgerError, ValueError):  # the board does not need it
        return ()
    found = []
    for way in dict.fromkeys(run.measurement for run in runs.runs):
        floor = floor_of(runs.runs, way)
        if floor is not None:
            found.append(f"{way.device}, {way.release}: {floor_words(floor)}")
    return tuple(found)


def board_body(desk: Desk, task: str, query: BoardQuery, floors: Sequence[str] = ()) -> Markup:
    """The page's body."""
    rows = desk.index.board(task, desk.rules)
    left = query.filtered(rows)
    drawn = points_of(left)[:DRAWN]
    return part(
        "board.html",
        task=task_view(desk.tasks[task], desk.rules),
        query=query,
        columns=COLUMNS,
        shown=query.shown(rows),
        everything=len(rows),
        precisions=_precisions(rows),
        picture=picture([_anchor(), *drawn], scale=desk.rules.rules.scale, front=True) if drawn else "",
        drawn=len(drawn),
        floors=floors,
        cost_scale=desk.rules.rules.cost_scale,
        vllm=desk.rules.vllm.release,
        probes=_probes(rows),
        conditions=_conditions(rows),
    )


def _probes(rows: Sequence[Row]) -> list[str]:
    """What the KL of the rows is of: one line a K."""
    tails: dict[int, list[float]] = {}
    for row in rows:
        if row.kl_top_k is not None and row.kl_tail_mass is not None:
            tails.setdefault(row.kl_top_k, []).append(row.kl_tail_mass)
    words = []
    for top_k, found in sorted(tails.items()):
        low, high = f"{min(found):.1%}", f"{max(found):.1%}"
        beyond = low if low == high else f"{low} to {high}"
        words.append(f"over BF16's top {top_k} and one bucket for the {beyond} beyond")
    return words


def _conditions(rows: Sequence[Row]) -> list[str]:
    """On what the rows were measured, each once."""
    return sorted(
        {row.device + (f", vLLM {row.vllm}" if row.vllm else "") for row in rows if row.device is not None}
    )


def points_of(rows: Sequence[Row], kind: str = "") -> list[Point]:
    """The rows that were measured as points, best first."""
    return [
        Point(
            label=row.participant,
            kind=kind or _kind(row),
            drift=row.drift,
            efficiency=row.efficiency_gain,
            drift_se=row.drift_se or 0.0,
            score=row.score or 0.0,
            score_se=row.score_se,
            href=f"/submissions/{row.submission}",
        )
        for row in sorted(rows, key=lambda row: -(row.score or 0.0))
        if row.drift is not None and row.efficiency_gain is not None
    ]


def _kind(row: Row) -> str:
    if row.reference:
        return "reference"
    return "candidate" if row.qualified and row.flagged is None else "unqualified"


def _anchor() -> Point:
    return Point(label="BF16", kind="anchor", drift=0.0, efficiency=1.0, score=1.0)
