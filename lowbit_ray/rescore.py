"""New rules over old measurements: what each record would have scored, and how the board would move. No GPU.

A record holds what was measured, so weights, floors, ceilings and the cost scale may change. What a record does not
hold cannot be judged anew: other workloads (they were not run) and other margins of the accuracy gate (domains are
not public, so the tier stays what it was); `unjudged` says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from lowbit_ray.board import Row, Summary, rank, summarize
from lowbit_ray.errors import ConfigError
from lowbit_ray.recheck import measured_of
from lowbit_ray.records import Record
from lowbit_ray.rules import Rules, _Frozen
from lowbit_ray.score import kl_reason, score

__all__ = ["Move", "moves", "rescore", "unjudged"]


class Move(_Frozen):
    """One row of the board, under the old rules and under the new ones."""

    participant: str
    submission: str
    reference: bool
    rank_before: int | None
    """None for references and flagged rows; so below."""
    rank_after: int | None
    score_before: float | None
    score_after: float | None
    board_score_before: float
    board_score_after: float
    qualified_before: bool
    qualified_after: bool
    reason: str | None
    """Why the score is cut or 0 under the new rules."""

    @property
    def changed(self) -> bool:
        """Whether anything but the last printed digit moved."""
        return (
            self.rank_before != self.rank_after
            or self.qualified_before != self.qualified_after
            or round(self.board_score_before, 4) != round(self.board_score_after, 4)
        )


def rescore(record: Record, rules: Rules, *, speed_floor: float) -> tuple[Summary, str | None]:
    """What the board would show of a record under these rules, and why its score is cut or 0.

    A record without measurements (refused before, or failed) stays as it is.
    """
    before = summarize(record)
    if record.result is None:
        return before, record.error
    data = json.loads(record.to_json())
    measured = measured_of(data, speed_floor=speed_floor)
    unchanged = None if record.result.admitted else measured.broken
    by_kl = kl_reason(measured.kl, rules.rules.kl_ceiling)
    # a record with a result was measured wholly: of the contract, only the KL is judged after that
    broken = by_kl if unchanged is None or unchanged.startswith("KL from BF16") else unchanged
    scored = score(replace(measured, broken=broken), rules)
    after = before.model_copy(
        update={
            "status": "done" if broken is None else "rejected",
            "score": round(scored.score, 4),
            "score_se": None if scored.score_se is None else round(scored.score_se, 4),
            "qualified": scored.qualified,
            "efficiency_gain": round(scored.efficiency_gain, 4),
            "drift": round(scored.drift, 4),
            "drift_se": scored.drift_se,
        }
    )
    return after, scored.reason


def moves(
    records: Sequence[Record],
    old: Rules,
    new: Rules,
    *,
    floor_of: Callable[[Rules], float],
    off_board: Mapping[str, str],
    stopped: Mapping[str, float] = MappingProxyType({}),
) -> list[Move]:
    """The board of one task before and after, in the order of the new one.

    `floor_of` is its speed floor, the others are as those of `rank`.
    """
    again = {record.id: rescore(record, new, speed_floor=floor_of(new)) for record in records}
    before = {row.submission: row for row in rank(records, old, off_board=off_board, stopped=stopped)}
    rows = rank([summary for summary, _ in again.values()], new, off_board=off_board, stopped=stopped)
    return [_move(before[row.submission], row, again[row.submission][1]) for row in rows]


def _move(before: Row, after: Row, reason: str | None) -> Move:
    return Move(
        participant=after.participant,
        submission=after.submission,
        reference=after.reference,
        rank_before=before.rank,
        rank_after=after.rank,
        score_before=before.score,
        score_after=after.score,
        board_score_before=before.board_score,
        board_score_after=after.board_score,
        qualified_before=before.qualified,
        qualified_after=after.qualified,
        reason=reason,
    )


def unjudged(old: Rules, new: Rules, records: Iterable[Record]) -> list[str]:
    """What differs in the new rules and cannot be judged from old measurements.

    Raises ConfigError where a workload of theirs was never run: such rules need new measurements.
    """
    for record in records:
        if record.result is not None and set(record.result.efficiency) - set(new.workloads):
            raise ConfigError(
                "these rules have other workloads than were run",
                where=f"submission {record.id}",
                found=", ".join(record.result.efficiency),
                expected=", ".join(new.workloads),
                remedy="Evaluate again under the new rules.",
            )
    notes = []
    if old.workloads != new.workloads:
        notes.append("workloads differ: speeds and peaks are those of the old ones")
    if old.gate.quality != new.gate.quality:
        notes.append("the accuracy gate differs: tiers are those of the old margins")
    return notes
