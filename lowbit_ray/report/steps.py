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
    "capped": "efficiency: under the hard cap",
    "efficiency": "efficiency",
    "quality": "quality: KL, perplexity, accuracy",
}


@dataclass(frozen=True, slots=True)
class Span:
    """One step on the time line."""

    title: str
    start_s: float
    """Seconds since the first step began."""
    seconds: float
    pod_seconds: float
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


def time_line(steps: Sequence[StageTime], gpus: int) -> list[Span]:
    """Each step's place on a common line; `gpus` of the pod turn pod seconds into GPU-hours."""
    if not steps:
        return []
    first = min(step.started_at for step in steps)
    starts = [(step.started_at - first).total_seconds() for step in steps]
    whole = max(start + step.seconds for start, step in zip(starts, steps, strict=True)) or 1.0
    spans = []
    for start, step in zip(starts, steps, strict=True):
        width = min(100.0, max(0.6, 100 * step.seconds / whole))
        spans.append(
            Span(
                title=step_title(step.name),
                start_s=start,
                seconds=step.seconds,
                pod_seconds=step.pod_seconds,
                gpu_hours=step.pod_seconds * gpus / 3600,
                left=min(100 * start / whole, 100 - width),
                width=width,
            )
        )
    return spans
