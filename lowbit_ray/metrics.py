"""What Ray publishes about the arena for Prometheus; `cluster/grafana.json` shows it.

One function an event. Outside of a Ray session they do nothing.
"""

from __future__ import annotations

from functools import cache

from ray.util.metrics import Counter, Gauge, Histogram

__all__ = ["METRICS", "count_dirty_device", "count_verdict", "set_queue", "step_took"]

METRICS = {
    "lowbit_queued": "submissions that wait for an evaluation",
    "lowbit_running": "evaluations at work",
    "lowbit_evaluations_total": "finished evaluations, by verdict",
    "lowbit_stage_seconds": "how long a step of an evaluation took, by stage",
    "lowbit_gpu_dirty_total": "devices that were not clean before or after a pod",
}
"""Every metric and what it counts; Ray puts `ray_` before the name."""
SECONDS = [1, 5, 15, 30, 60, 120, 300, 600, 1200, 2400, 4800]


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(name, description=METRICS[name])


@cache
def _counter(name: str, *tags: str) -> Counter:
    return Counter(name, description=METRICS[name], tag_keys=tags)


@cache
def _histogram(name: str, *tags: str) -> Histogram:
    return Histogram(name, description=METRICS[name], boundaries=SECONDS, tag_keys=tags)


def set_queue(queued: int, running: int) -> None:
    """The dispatcher's view, set each time it looks at the ledger."""
    _gauge("lowbit_queued").set(queued)
    _gauge("lowbit_running").set(running)


def count_verdict(verdict: str) -> None:
    """An evaluation has a record: done, rejected or failed; or ended as cancelled, or by a fault of ours (fault)."""
    _counter("lowbit_evaluations_total", "verdict").inc(tags={"verdict": verdict})


def step_took(step: str, seconds: float) -> None:
    """A step is done; its stage is the step's name without the pod's (`timed-5f0c…` is `timed`)."""
    _histogram("lowbit_stage_seconds", "stage").observe(seconds, tags={"stage": step.partition("-")[0]})


def count_dirty_device() -> None:
    """A device was not clean, and its node went into quarantine."""
    _counter("lowbit_gpu_dirty_total").inc()
