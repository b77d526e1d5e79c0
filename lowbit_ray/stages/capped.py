"""The hard cap: the candidate served again in the memory that it claims to need, once for each workload.

The caps are taken in ascending order, so that the last server runs under the largest checked one; there the
candidate's quality is measured as well, and no further start is needed for it.
"""

from __future__ import annotations

from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.pod import Pod
from lowbit_ray.errors import EngineError
from lowbit_ray.measure.budget import BudgetRun, budget_of, judge
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide, time_workload
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.serving import Server

__all__ = ["by_budget", "cap_of", "capped_run", "unhealthy"]


def by_budget(timed: TimedSide) -> list[str]:
    """The workloads, the smallest peak first."""
    return sorted(timed.peaks, key=lambda name: timed.peaks[name].peak_gib)


def cap_of(evaluation: Evaluation, pod: Pod, timed: TimedSide, name: str) -> Cap:
    """The cap of one workload's peak."""
    workload = evaluation.task.timed_workloads(evaluation.rules)[name]
    startup = timed.startup
    return Cap.of_peak(
        timed.peaks[name].peak_gib,
        rules=evaluation.rules,
        total_gib=pod.facts.total_gib,
        max_model_len=workload.input_len + workload.output_len,
        weights_gib=None if startup is None else startup.weights_gib,
        kv_block_bytes=0 if startup is None else startup.kv_block_bytes,
    )


def capped_run(
    evaluation: Evaluation, server: Server, hidden: Hidden, timed: TimedSide, name: str
) -> BudgetRun:
    """Runs the workload under the cap, on fresh prompts."""
    workload = evaluation.task.timed_workloads(evaluation.rules)[name]
    capped, _ = time_workload(evaluation, server, name, workload, hidden.timed(name, workload, "capped"))
    rules = evaluation.rules.engine
    budget = budget_of(timed.peaks[name].peak_gib, rules)
    return judge(budget, timed.runs[name][0], capped.run, workload, rules)


def unhealthy(evaluation: Evaluation, timed: TimedSide, name: str, error: EngineError) -> BudgetRun:
    """The verdict where the candidate did not serve the workload under its cap."""
    workload = evaluation.task.timed_workloads(evaluation.rules)[name]
    rules = evaluation.rules.engine
    budget = budget_of(timed.peaks[name].peak_gib, rules)
    return judge(budget, timed.runs[name][0], None, workload, rules, failure=str(error))
