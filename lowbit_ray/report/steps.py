"""The steps of an evaluation as people read them, and how long each took: the time line of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # whoever follows from afar has nothing of what measures
    from lowbit_ray.records import StageTime

__all__ = ["Span", "duration", "log_title", "step_title", "time_line"]

NAMES = {
    "build": "build: fetch and seal",
    "contract": "contract",
    "timed": "efficiency: candidate timed",
    "checked": "conduct: the timed server asked again",
    "later": "conduct: the last server asked again",
    "anchor": "efficiency: anchor timed, outputs audited",
    "reusable": "anchor: what later evaluations of the task reuse",
    "awaited": "anchor: another evaluation was asking it",
    "capped": "efficiency: under the hard cap",
    "efficiency": "efficiency",
    "quality": "quality: KL, perplexity, accuracy",
}


GAP_S = 2.0
"""Beginnings are noted to the second, so that less between two steps says nothing."""
WAIT = "preparing the questions, waiting for a pod"
BETWEEN = "between two steps"


@dataclass(frozen=True, slots=True)
class Span:
    """One step on the time line."""

    title: str
    start_s: float
    """Seconds since the first step began."""
    seconds: float
    pod_seconds: float | None
    """Of them with the pod held; None where it is not known."""
    gpu_hours: float
    left: float
    """Where its bar begins, percent of the whole line."""
    width: float
    """How wide its bar is, percent; a step too short to see is still drawn."""


def step_title(step: str) -> str:
    """A step's name as people read it: `capped-serve-5f0c…` is the cap of serve on one pod."""
    kind, _, rest = step.partition("-")
    title = NAMES.get(kind, kind)
    workload = rest.rpartition("-")[0] if kind == "capped" else ""
    return f"{title} ({workload})" if workload else title


def log_title(name: str) -> str:
    """A start-up log's name as people read it: `timed-0` is of the candidate that is timed, first attempt."""
    _, _, attempt = name.rpartition("-")
    return f"{step_title(name)}, attempt {int(attempt) + 1}" if attempt.isdigit() else name


def duration(seconds: float) -> str:
    """`4.2 s`, `1:01 min`, `2:03:04 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"


def time_line(steps: Sequence[StageTime], gpus: int, charged_hours: float | None = None) -> list[Span]:
    """Each step's place on a common line; `gpus` of the pod turn pod seconds into GPU-hours.

    What lies between two steps is a row of its own where it took more than the clock's second or two: a pod that is
    waited for, servers that end; in records of before it was a step, what the anchor was asked for later
    evaluations. charged_hours: of the record; of such a row as much is shown as held as the steps leave of it.
    """
    if not steps:
        return []
    first = min(step.started_at for step in steps)
    starts = [(step.started_at - first).total_seconds() for step in steps]
    whole = max(start + step.seconds for start, step in zip(starts, steps, strict=True)) or 1.0
    left_s = 3600 * (charged_hours or 0.0) / max(1, gpus) - sum(step.pod_seconds for step in steps)
    spans: list[Span] = []
    ended, held_before = 0.0, False
    for start, step in zip(starts, steps, strict=True):
        holds = step.pod_seconds > 0
        if start - ended > GAP_S:
            known = min(start - ended, max(0.0, left_s)) if gpus else None
            held = known if holds and held_before else 0.0
            left_s -= held or 0.0
            title = _between(spans[-1].title, holds=holds, held_before=held_before)
            spans.append(_span(title, ended, start - ended, held, gpus, whole))
        spans.append(_span(step_title(step.name), start, step.seconds, step.pod_seconds, gpus, whole))
        ended = max(ended, start + step.seconds)
        held_before = held_before or holds
    return spans


def _between(before: str, *, holds: bool, held_before: bool) -> str:
    """What a stretch without a step is: before the first pod, after the anchor's step, or unknown."""
    if holds and not held_before:
        return WAIT
    return NAMES["reusable"] if holds and before == NAMES["anchor"] else BETWEEN


def _span(
    title: str, start: float, seconds: float, pod_seconds: float | None, gpus: int, whole: float
) -> Span:
    width = min(100.0, max(0.6, 100 * seconds / whole))
    return Span(
        title=title,
        start_s=start,
        seconds=seconds,
        pod_seconds=pod_seconds,
        gpu_hours=(pod_seconds or 0.0) * gpus / 3600,
        left=min(100 * start / whole, 100 - width),
        width=width,
    )
