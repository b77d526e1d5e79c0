"""Records of one task → ranked rows: the last scored submission of each participant, discounted by its cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lowbit_ray.rules import Rules, _Frozen

if TYPE_CHECKING:
    from lowbit_ray.records import Record

__all__ = ["Row", "rank"]


class Row(_Frozen):
    """One row of the board."""

    rank: int | None
    """None for references, which are shown but not ranked."""
    participant: str
    submission: str
    method: str
    track: str
    score: float
    score_se: float | None
    gpu_hours: float
    """All evaluations of the task by this participant, dev and scored, failed ones included; 0 for references."""
    board_score: float
    """score · exp(−gpu_hours / 100), the rules' cost scale."""
    reference: bool


def rank(records: Iterable[Record], rules: Rules) -> list[Row]:
    """The board of one task from all of its records, best first; ties broken by the earlier submission."""
    by_participant: dict[tuple[str, bool], list[Record]] = {}
    for record in records:
        by_participant.setdefault((record.participant, record.partition == "reference"), []).append(record)
    rows: list[tuple[float, str, Row]] = []
    for (participant, reference), theirs in by_participant.items():
        scored = [
            r for r in theirs if r.split == "test" and r.result is not None and r.result.score is not None
        ]
        if not scored:
            continue
        last = max(scored, key=lambda record: record.updated_at)
        result = last.result
        if result is None or result.score is None:
            continue
        hours = 0.0 if reference else math.fsum(record.charged_hours for record in theirs)
        row = Row(
            rank=None,
            participant=participant,
            submission=last.id,
            method=last.solution.method,
            track=last.track,
            score=result.score,
            score_se=result.score_se,
            gpu_hours=hours,
            board_score=result.score * math.exp(-hours / rules.rules.cost_scale),
            reference=reference,
        )
        rows.append((-row.board_score, last.created_at.isoformat(), row))
    ranked: list[Row] = []
    place = 0
    for _, _, row in sorted(rows, key=lambda entry: entry[:2]):
        place += not row.reference
        ranked.append(row.model_copy(update={"rank": None if row.reference else place}))
    return ranked
