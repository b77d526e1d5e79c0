"""Efficiency: candidate and anchor timed on the same workloads, one after the other on one pod.

The candidate goes first, before anything of the anchor's has run, and both get the same prompts: each prompt is
its own control, and the audit compares what the two said to it. Prompts are drawn afresh for each submission,
workload and repeat.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowbit_ray.engines.accounts import Startup
from lowbit_ray.engines.footprint import Footprint
from lowbit_ray.engines.isolation import Isolation
from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.load import Prompt
from lowbit_ray.measure.memory import PeakMemory, peak_memory
from lowbit_ray.measure.workload import Output, Timed, WarmUp, WorkloadRun, run_workload
from lowbit_ray.rules import Workload, _Frozen
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.questions import inquire
from lowbit_ray.stages.serving import Server

__all__ = ["TimedSide", "time_side", "time_workload"]


class TimedSide(_Frozen):
    """One side's timed runs, all on one server; its outputs are hidden."""

    start_seconds: float
    startup: Startup | None
    runs: dict[str, tuple[WorkloadRun, ...]]
    """Each repeat, by workload."""
    outputs: dict[str, tuple[Output, ...]]
    """What the first repeat said."""
    peaks: dict[str, PeakMemory]
    """The largest of the repeats."""
    foreign_cpu: dict[str, float]
    """Largest share of the host's CPUs that others used while a workload was timed."""
    start_log: str
    """What the engine said while it started."""
    isolation: Isolation | None = None
    """What the engine was shut in by, on the engine track."""
    at_start: Footprint | None = None
    """What its processes held and had read before anything was timed."""
    at_end: Footprint | None = None
    """And after all of it."""


def time_side(evaluation: Evaluation, server: Server, hidden: Hidden) -> TimedSide:
    """Times all workloads on a running server and reads its accounts."""
    startup, start_log = server.startup()
    at_start = server.footprint()
    runs: dict[str, tuple[WorkloadRun, ...]] = {}
    outputs: dict[str, tuple[Output, ...]] = {}
    peaks: dict[str, PeakMemory] = {}
    foreign: dict[str, float] = {}
    for name, workload in evaluation.task.timed_workloads(evaluation.rules).items():
        timed = [
            time_workload(evaluation, server, name, workload, hidden.timed(name, workload, repeat))
            for repeat in range(evaluation.task.timed_repeats(evaluation.rules))
        ]
        device_peak_gib = server.device_peak_gib()
        runs[name] = tuple(each.run for each, _ in timed)
        outputs[name] = timed[0][0].outputs
        _check_ids(outputs[name], hidden.vocabulary, name)
        foreign[name] = max(share for _, share in timed)
        peaks[name] = max(
            (peak_memory(startup, each.run, workload, device_peak_gib=device_peak_gib) for each, _ in timed),
            key=lambda peak: peak.peak_gib,
        )
    return TimedSide(
        start_seconds=server.start_s or 0.0,
        startup=startup,
        runs=runs,
        outputs=outputs,
        peaks=peaks,
        foreign_cpu=foreign,
        start_log=start_log,
        isolation=server.isolation,
        at_start=at_start,
        at_end=server.footprint(),
    )


def time_workload(
    evaluation: Evaluation,
    server: Server,
    name: str,
    workload: Workload,
    prompts: tuple[Sequence[Prompt], WarmUp],
) -> tuple[Timed, float]:
    """One timed run, warm-up included, and the share of the host's CPUs that others used meanwhile."""
    drawn, warm_up = prompts
    timeout_s = evaluation.task.engine.request_timeout_s
    question = inquire(run_workload, name, workload, drawn, timeout_s=timeout_s, warm_up=warm_up)
    return server.ask_watched(question, f"timing {name}")


def _check_ids(outputs: Sequence[Output], vocabulary: int, name: str) -> None:
    """The anchor is asked about these ids later; it knows no others than its own."""
    largest = max((token for output in outputs for token in output.token_ids or ()), default=0)
    if largest >= vocabulary:
        raise EngineAnswerError(
            "a token id is not of the vocabulary",
            where=f"workload {name}: token_ids",
            found="a larger one",
            expected=f"below {vocabulary}",
        )
