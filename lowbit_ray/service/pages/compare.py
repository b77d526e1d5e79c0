"""Two or more submissions side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import HTMLResponse

from lowbit_ray.measure.noise_floor import device_of
from lowbit_ray.records import Record, Result
from lowbit_ray.report.lines import NAMES, in_order
from lowbit_ray.report.picture import Point, picture
from lowbit_ray.service.desk import TheDesk
from lowbit_ray.service.pages.site import frame, part
from lowbit_ray.service.pages.words import NONE, fixed, percent, score, times
from lowbit_ray.service.problems import Refusal
from lowbit_ray.service.shown import find, record_of
from lowbit_ray.service.who import Anybody

__all__ = ["Compared", "compare_rows", "router"]

router = APIRouter()

MOST = 6
"""Submissions beside each other at most."""
ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of each submission."""

    title: str
    values: tuple[str, ...]
    best: int | None = None
    """Which one is best; None where that means nothing or all are alike."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """How a figure is read, printed and judged."""

    title: str
    read: Callable[[Result], float | None]
    print: Callable[[float | None], str]
    better: Callable[[Sequence[float]], float] | None
    error: Callable[[Result], float | None] = lambda result: None
    """Its standard error, in the figure's unit."""

    def of(self, result: Result | None) -> str:
        """As it is shown of one submission."""
        value = self.read(result) if result else None
        se = self.error(result) if result else None
        return self.print(value) if value is None or se is None else f"{self.print(value)} ± {self.print(se)}"


@router.get("/compare")
async def compare(
    desk: TheDesk, person: Anybody, ids: Annotated[list[str] | None, Query(alias="id")] = None
) -> HTMLResponse:
    """Columns in the order of the address; a form where fewer than two are named."""
    wanted = list(dict.fromkeys(found for text in ids or () for found in ID.findall(text)))[:MOST]
    records: list[Record] = []
    missing: list[str] = []
    for name in wanted:
        try:
            standing = await find(desk, name, person)
            if standing.summary is None:
                missing.append(f"{name} is not finished")
            else:
                records.append(await record_of(desk, standing))
        except Refusal:
            missing.append(f"{name} is not known")
    body = part(
        "compare.html",
        records=records,
        missing=missing,
        rows=compare_rows(records) if len(records) > 1 else [],
        picture=_picture(records, desk.rules.rules.scale),
        tasks=sorted({record.task_id for record in records}),
        apart=_apart(records),
        ids=wanted,
    )
    return frame(desk, person, "Compare submissions", body, here="/compare")


def compare_rows(records: Sequence[Record]) -> list[Compared]:
    """The figures that are compared, each printed for every record."""
    rows = [
        Compared("verdict", tuple(_verdict(record) for record in records)),
        Compared("precision", tuple(record.solution.precision or "—" for record in records)),
        Compared("track", tuple(record.track for record in records)),
    ]
    errors = tuple(
        score(record.result.score, record.result.score_se)
        if record.result
        else score(None if record.status == "failed" else 0.0)
        for record in records
    )
    rows.append(Compared("score ± se", errors, _best(records, lambda result: result.score, max)))
    names = {name for record in records if record.result for name in record.result.speeds}
    figures = [*FIGURES]
    for name, _ in in_order(dict.fromkeys(sorted(names), 0)):
        figures += _of_workload(name)
    for figure in figures:
        values = tuple(figure.of(record.result) for record in records)
        best = _best(records, figure.read, figure.better) if figure.better else None
        rows.append(Compared(figure.title, values, best))
    rows.append(Compared("GPU-hours", tuple(f"{record.charged_hours:.2f}" for record in records)))
    rows += [Compared(title, tuple(read(record) for record in records)) for title, read in HOW.items()]
    return rows


def _of_workload(name: str) -> list[_Figure]:
    title = NAMES.get(name, name)

    def speed_se(result: Result) -> float | None:
        relative, speed = result.speeds_se.get(name), result.speeds.get(name)
        return None if relative is None or speed is None else relative * speed

    return [
        _Figure(f"speed, {title}", lambda r: r.speeds.get(name), times, max, speed_se),
        _Figure(f"memory, {title}", lambda r: r.memories.get(name), times, max),
    ]


FIGURES = (
    _Figure("efficiency gain E", lambda result: result.efficiency_gain, lambda v: fixed(v, 3), max),
    _Figure(
        "drift D, points",
        lambda result: result.drift,
        lambda v: fixed(v, 3),
        min,
        lambda result: result.drift_se,
    ),
    _Figure(
        "speed",
        lambda result: result.speed,
        times,
        max,
        lambda result: None if result.speed_se is None else result.speed_se * result.speed,
    ),
    _Figure("memory", lambda result: result.memory, times, max),
    _Figure(
        "KL, nats per token",
        lambda result: result.kl.kl,
        lambda v: fixed(v, 5),
        min,
        lambda result: result.kl.kl_se,
    ),
    _Figure(
        "accuracy drop, points",
        lambda result: 100 * result.mean_drop,
        lambda v: fixed(v, 2),
        min,
        lambda result: None if result.mean_drop_se is None else 100 * result.mean_drop_se,
    ),
    _Figure("generated length", lambda result: result.length_shift, percent, None),
    _Figure("peak, first workload, GiB", lambda result: result.peak_gib, fixed, min),
    _Figure(
        "stored bits a weight",
        lambda result: result.precision.effective_bits,
        fixed,
        min,
    ),
)


def _probe(record: Record) -> str:
    if record.result is None:
        return NONE
    kl = record.result.kl
    return f"top {kl.top_k}, {kl.tail_mass:.1%} beyond"


def _floor(record: Record) -> str:
    return fixed(record.result.noise_floor.kl if record.result else None, 5)


def _release(record: Record) -> str:
    return NONE if record.host is None else record.host.vllm or "of its own"


HOW: dict[str, Callable[[Record], str]] = {
    "KL is over": _probe,
    "BF16 against itself, KL": _floor,
    "executed precision": lambda record: (
        record.result.executed.label if record.result and record.result.executed else NONE
    ),
    "accuracy items": lambda record: str(record.result.accuracy_items) if record.result else NONE,
    "device": lambda record: device_of(record.host) if record.host else NONE,
    "vLLM": _release,
    "rules": lambda record: record.rules_version,
    "finished": lambda record: f"{record.updated_at:%Y-%m-%d %H:%M} UTC",
}
"""How each was measured."""
SAME = ("device", "vLLM", "rules")
"""What figures must share that are held against each other."""


def _apart(records: Sequence[Record]) -> list[str]:
    """In what the measured ones differ, so that their figures are not each other's measure."""
    measured = [record for record in records if record.result is not None]
    found = []
    for title in SAME:
        values = sorted({HOW[title](record) for record in measured})
        if len(values) > 1:
            found.append(f"{title}: {', '.join(values)}")
    return found


def _verdict(record: Record) -> str:
    if record.result is None:
        return "failed" if record.status == "failed" else "rejected"
    return "qualified" if record.result.qualified else "gate failed" if record.result.admitted else "rejected"


def _best(
    records: Sequence[Record],
    read: Callable[[Result], float | None],
    better: Callable[[Sequence[float]], float],
) -> int | None:
    values = [read(record.result) if record.result else None for record in records]
    known = [value for value in values if value is not None]
    if len(known) < 2 or max(known) == min(known):
        return None
    return values.index(better(known))


def _picture(records: Sequence[Record], scale: float) -> str:
    points = [
        Point(
            label=f"{record.participant}: {record.solution.precision or record.solution.method}",
            kind="candidate" if record.result.qualified else "unqualified",
            drift=record.result.drift,
            efficiency=record.result.efficiency_gain,
            drift_se=record.result.drift_se or 0.0,
            score=record.result.score,
            score_se=record.result.score_se,
            href=f"/submissions/{record.id}",
        )
        for record in records
        if record.result is not None
    ]
    anchor = Point(label="BF16", kind="anchor", drift=0.0, efficiency=1.0, score=1.0)
    return picture([anchor, *points], scale=scale) if points else ""
