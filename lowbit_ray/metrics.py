"""What Ray publishes about the arena for Prometheus; `cluster/grafana.json` shows it.

One function an event. Outside of a Ray session they do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ray.util.metrics import Counter, Gauge, Histogram

__all__ = ["METRICS", "StepMetrics", "count_dirty_device", "set_queue", "set_verdicts"]

METRICS = {
    "lowbit_queued": "submissions that wait for an evaluation",
    "lowbit_running": "evaluations at work",
    "lowbit_evaluations_total": "finished submissions of the ledger, by verdict",
    "lowbit_stage_seconds": "how long a step of an evaluation took, by stage",
    "lowbit_gpu_dirty_total": "nodes that went into quarantine: a device was not clean or did not answer",
}
"""Every metric and what it counts; Ray puts `ray_` before the name."""
SECONDS = [1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 3600]
"""Bounds of the histogram; Ray hands on in which of them a value fell, not the value."""


@cache
def _gauge(name: str, *tags: str) -> Gauge:
    return Gauge(name, description=METRICS[name], tag_keys=tags)


@cache
def _counter(name: str) -> Counter:
    return Counter(name, description=METRICS[name])


@cache
def _histogram(name: str, *tags: str) -> Histogram:
    return Histogram(name, description=METRICS[name], boundaries=SECONDS, tag_keys=tags)


def set_queue(queued: int, running: int) -> None:
    """What the dispatcher saw, each time it looked at the ledger."""
    _gauge("lowbit_queued").set(queued)
    _gauge("lowbit_running").set(running)


def set_verdicts(verdicts: Mapping[str, int]) -> None:
    """How many submissions of the ledger are done, rejected, failed, cancelled: the dispatcher's view as well.

    A gauge of the ledger's own count, as a counter in a driver would start at 0 with every evaluation.
    """
    for verdict, count in verdicts.items():
        _gauge("lowbit_evaluations_total", "verdict").set(count, tags={"verdict": verdict})


def count_dirty_device() -> None:
    """A node went into quarantine."""
    _counter("lowbit_gpu_dirty_total").inc()


class StepMetrics:
    """A watch that publishes how long each step took."""

    def begin(self, step: str) -> None:
        """Nothing yet."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Nothing yet."""

    def end(self, step: str, seconds: float, *, reused: bool) -> None:
        """The stage is the step's name without the pod's: `timed-5f0c…` is `timed`."""
        if not reused:
            _histogram("lowbit_stage_seconds", "stage").observe(
                seconds, tags={"stage": step.partition("-")[0]}
            )
