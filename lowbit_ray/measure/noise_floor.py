"""The noise floor: what a score reads where the truth is no difference, from whole evaluations of the anchor itself.

Such an evaluation takes every step that a candidate's takes, with prompts of its own, so its speed and memory gains
scatter around 1, its KL, accuracy drop and length shift around 0. Only evaluations on the same kind of device, with
the same engine release and under the same rules are taken together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from statistics import fmean, stdev
from typing import Literal

from lowbit_ray.engines.host import Host
from lowbit_ray.rules import _Described, _Frozen

__all__ = ["FloorRun", "FloorRuns", "Measurement", "RepeatedFloor", "Spread", "device_of", "floor_of"]


class Measurement(_Frozen):
    """What two evaluations must share so that their figures may be taken together."""

    device: str
    """The pod's devices: how many of which kind."""
    release: str
    """The engine's, as the anchor's server prints it."""
    rules_version: str


class FloorRun(_Frozen):
    """One evaluation of the anchor against itself."""

    submission: str
    finished_at: datetime
    measurement: Measurement
    speeds: dict[str, float]
    """Speed gain of each workload; the truth is 1."""
    speed: float
    memory: float
    """Memory gain; the truth is 1."""
    kl: float
    """Nats per token; the truth is 0, and the estimate cannot be below it."""
    mean_drop: float
    """Accuracy drop, a fraction; the truth is 0."""
    length_shift: float
    score: float
    """The truth is 1."""


class FloorRuns(_Frozen):
    """All of a task, as the ledger holds them under `tasks/<task>/noise_floor.json`."""

    version: Literal[1] = 1
    task_id: str
    runs: tuple[FloorRun, ...] = ()

    def with_run(self, run: FloorRun) -> FloorRuns:
        """With one more; a run that is there already is replaced."""
        others = tuple(each for each in self.runs if each.submission != run.submission)
        return self.model_copy(update={"runs": (*others, run)})


class Spread(_Described):
    """A figure over evaluations."""

    mean: float
    """In the figure's unit."""
    sd: float | None
    """Sample standard deviation of one evaluation's figure; None for a single evaluation."""


class RepeatedFloor(_Described):
    """What the evaluations of the anchor against itself say together."""

    measurement: Measurement
    evaluations: int
    speeds: dict[str, Spread]
    speed: Spread
    """Geometric mean over workloads."""
    memory: Spread
    kl: Spread
    mean_drop: Spread
    length_shift: Spread
    score: Spread


def device_of(host: Host) -> str:
    """The kind of device of a record's host, such as `1 × NVIDIA H200`."""
    if host.gpus:
        names = sorted({gpu.name for gpu in host.gpus})
        return f"{len(host.gpus)} × {', '.join(names)}"
    return f"{host.cpus} × {host.cpu}"


def floor_of(runs: Iterable[FloorRun], measurement: Measurement) -> RepeatedFloor | None:
    """The floor of all runs that were measured in this way; None where there is none."""
    alike = [run for run in runs if run.measurement == measurement]
    if not alike:
        return None

    def spread(figure: Callable[[FloorRun], float]) -> Spread:
        return _spread([figure(run) for run in alike])

    names = [name for name in alike[0].speeds if all(name in run.speeds for run in alike)]
    return RepeatedFloor(
        measurement=measurement,
        evaluations=len(alike),
        speeds={name: _spread([run.speeds[name] for run in alike]) for name in names},
        speed=spread(lambda run: run.speed),
        memory=spread(lambda run: run.memory),
        kl=spread(lambda run: run.kl),
        mean_drop=spread(lambda run: run.mean_drop),
        length_shift=spread(lambda run: run.length_shift),
        score=spread(lambda run: run.score),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(mean=fmean(values), sd=stdev(values) if len(values) > 1 else None)
