"""Records of one task → ranked rows: the last scored submission of each participant, discounted by its cost.

A scored submission that was rejected is a row of score 0; one that failed (no verdict) is none. Two rows are tied
when their 95 % intervals overlap: the board says which places each row's interval reaches.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from lowbit_ray.rules import Rules, _Described

if TYPE_CHECKING:
    from lowbit_ray.records import Record

__all__ = ["Figures", "Row", "Summary", "rank", "summarize"]

TWO_SIDED_95 = 1.96
"""Normal quantile of the interval by which rows are tied."""


class Figures(_Described):
    """What the board shows of a record; None where the submission was refused before it was measured."""

    score: float | None
    """LowBScore; 0 where it was rejected, None where there is no verdict."""
    score_se: float | None
    """Its standard error, by the rules' formula."""
    qualified: bool
    """Whether contract, engine rules and all gates are kept."""
    efficiency_gain: float | None
    """E = sqrt(memory · speed / max(1, 1 + length shift)); 1 is the anchor's."""
    drift: float | None
    """D, points."""
    drift_se: float | None
    """Points."""
    precision: str | None
    """As declared, or read from the bytes where nothing was declared."""
    kl: float | None
    """KL from BF16, nats per token: a lower bound."""
    kl_se: float | None = None
    """Its standard error over sequences."""
    kl_top_k: int | None = None
    """Likeliest tokens of BF16's that it is summed over; one bucket holds the rest."""
    kl_tail_mass: float | None = None
    """BF16's probability in that bucket."""
    mean_drop: float | None
    """Accuracy drop from BF16, mean over the hidden domains; a fraction."""
    mean_drop_se: float | None = None
    """Fraction."""
    speed: float | None
    """Over the anchor's."""
    speed_se: float | None = None
    """Measured relative standard error; None with one run a side."""
    memory: float | None
    """The anchor's peak over this one's."""
    peak_gib: float | None
    """GiB, on the first workload."""
    device: str | None = None
    """What it was measured on."""
    vllm: str | None = None
    """Release of vLLM there."""


class Summary(Figures):
    """One finished record, as far as the board needs it: small, so that an index can hold every one."""

    id: str
    task_id: str
    participant: str
    reference: bool
    method: str
    track: Literal["checkpoint", "engine"]
    split: Literal["dev", "test"]
    status: Literal["done", "rejected", "failed"]
    reason: str | None = None
    """Why it did not qualify, or has no score."""
    charged_hours: float
    created_at: datetime
    updated_at: datetime


class Row(Figures):
    """One row of the board."""

    rank: int | None
    """None for references and flagged rows, which are shown but not ranked."""
    tied_from: int | None
    """Best place that the row's 95 % interval reaches; equal to `rank` where it is tied with nobody better."""
    tied_to: int | None
    """Worst place that it reaches."""
    participant: str
    submission: str
    method: str
    track: Literal["checkpoint", "engine"]
    gpu_hours: float
    """All evaluations of the task by this participant, dev and scored, failed ones and those that they cancelled
    included; 0 for references."""
    board_score: float
    """score · exp(−gpu_hours / 100), the rules' cost scale."""
    board_score_se: float | None
    """score_se, discounted alike."""
    reference: bool
    flagged: str | None
    """An organizer's reason why the row does not count."""
    created_at: datetime
    updated_at: datetime

    @property
    def tied(self) -> bool:
        """Whether its interval overlaps another ranked row's."""
        return self.tied_from != self.tied_to


def summarize(record: Record | Mapping[str, Any]) -> Summary:
    """What the board needs of a record, or of a record's parsed JSON.

    Raises KeyError, TypeError or ValueError where the JSON is no record.
    """
    data = record if isinstance(record, Mapping) else record.model_dump(mode="json")
    result: Mapping[str, Any] | None = data["result"]
    refused = {"score": 0.0 if data["status"] == "rejected" else None, "qualified": False}
    measured = {name: result.get(name) for name in MEASURED} | _probe(result["kl"]) if result else refused
    host: Mapping[str, Any] | None = data.get("host")
    values = dict.fromkeys(Figures.model_fields) | measured
    return Summary.model_validate(
        values
        | {name: data[name] for name in COPIED}
        | {
            "precision": data["solution"]["precision"],
            "method": data["solution"]["method"],
            "reference": data["partition"] == "reference",
            "reason": result["reason"] if result else data["error"],
            "charged_hours": data.get("charged_hours", 0.0),
            "device": _device(host) if host else None,
            "vllm": host["vllm"] if host else None,
        }
    )


def _probe(kl: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kl": kl["kl"],
        "kl_se": kl["kl_se"],
        "kl_top_k": kl.get("top_k"),
        "kl_tail_mass": kl.get("tail_mass"),
    }


def _device(host: Mapping[str, Any]) -> str:
    """In the words of `measure.noise_floor.device_of`, which needs more than a participant's commands have."""
    names = sorted({gpu["name"] for gpu in host["gpus"]})
    return f"{len(host['gpus'])} × {', '.join(names)}" if names else f"{host['cpus']} × {host['cpu']}"


APART = {"precision", "device", "vllm", "kl", "kl_se", "kl_top_k", "kl_tail_mass"}
MEASURED = tuple(name for name in Figures.model_fields if name not in APART)
"""Figures that stand under the same name in a record's result."""
COPIED = ("id", "task_id", "participant", "track", "split", "status", "created_at", "updated_at")


def rank(
    records: Iterable[Record | Summary],
    rules: Rules,
    *,
    off_board: Mapping[str, str] | Collection[str] = frozenset(),
    stopped: Mapping[str, float] = MappingProxyType({}),
) -> list[Row]:
    """The board of one task from all of its records, best first; equal scores go to the earlier submission.

    `off_board`: flagged submissions, with the organizers' reasons where it is a mapping. A flagged row stands last
    and has no rank. `stopped`: GPU-hours, by participant, of evaluations that they cancelled, which have no record.
    """
    by_participant: dict[tuple[str, bool], list[Summary]] = {}
    for record in records:
        item = record if isinstance(record, Summary) else summarize(record)
        by_participant.setdefault((item.participant, item.reference), []).append(item)
    rows = [
        row
        for (name, _), theirs in by_participant.items()
        if (row := _row(theirs, rules, off_board, stopped.get(name, 0.0))) is not None
    ]
    rows.sort(key=lambda row: (row.flagged is not None, -row.board_score, row.created_at, row.submission))
    return _placed(rows)


def _row(
    theirs: Sequence[Summary],
    rules: Rules,
    off_board: Mapping[str, str] | Collection[str],
    stopped_hours: float,
) -> Row | None:
    """A participant's row, not yet placed; None before the first scored verdict."""
    scored = [item for item in theirs if item.split == "test" and item.score is not None]
    if not scored:
        return None
    last = max(scored, key=lambda item: (item.updated_at, item.created_at, item.id))
    hours = 0.0 if last.reference else math.fsum([stopped_hours, *(item.charged_hours for item in theirs)])
    discount = math.exp(-hours / rules.rules.cost_scale)
    figures = last.model_dump(include=set(Figures.model_fields))
    return Row(
        **figures,
        rank=None,
        tied_from=None,
        tied_to=None,
        participant=last.participant,
        submission=last.id,
        method=last.method,
        track=last.track,
        gpu_hours=hours,
        board_score=(last.score or 0.0) * discount,
        board_score_se=None if last.score_se is None else last.score_se * discount,
        reference=last.reference,
        flagged=_reason(last.id, off_board),
        created_at=last.created_at,
        updated_at=last.updated_at,
    )


def _reason(submission: str, off_board: Mapping[str, str] | Collection[str]) -> str | None:
    if submission not in off_board:
        return None
    return off_board[submission] if isinstance(off_board, Mapping) else "flagged by an organizer"


def _placed(rows: Sequence[Row]) -> list[Row]:
    """The rows, in order, with their ranks and the places that their intervals reach."""
    ranked = [row for row in rows if not row.reference and row.flagged is None]
    intervals = [_interval(row) for row in ranked]
    lows, highs = sorted(low for low, _ in intervals), sorted(high for _, high in intervals)
    places: dict[str, dict[str, int]] = {}
    for place, (row, (low, high)) in enumerate(zip(ranked, intervals, strict=True), start=1):
        surely_better = len(ranked) - bisect_right(lows, high)
        surely_worse = bisect_left(highs, low)
        places[row.submission] = {
            "rank": place,
            "tied_from": min(place, surely_better + 1),
            "tied_to": max(place, len(ranked) - surely_worse),
        }
    return [row.model_copy(update=places.get(row.submission, {})) for row in rows]


def _interval(row: Row) -> tuple[float, float]:
    half = TWO_SIDED_95 * (row.board_score_se or 0.0)
    return row.board_score - half, row.board_score + half
