"""The hard cap: the candidate served again in the memory that it claims to need, once for each workload.

The caps are taken in ascending order, so that the last server runs under the largest checked one; there the
candidate's quality is measured as well, and no further start is needed for it.
"""

from __future__ import annotations

from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.footprint import Footprint
from lowbit_ray.engines.pod import Pod
from lowbit_ray.errors import EngineError
from lowbit_ray.measure.budget import BudgetRun, budget_of, judge
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide, time_workload
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.serving import Server
from lowbit_ray.tasks import Domain

__all__ = ["CappedSide", "by_budget", "cap_of", "capped_run", "unhealthy"]

ROOM = 1.1
"""How much more than one request of the full length the pool must hold: its expected size is uncertain by rounding."""

QUESTION_TOKENS = 512
"""More than the question of any item and its chat template take."""


class CappedSide(_Frozen):
    """One server under its cap; parts are None where it did not come so far."""

    run: BudgetRun
    start_log: str
    """What the engine said while it started."""
    at_start: Footprint | None
    """What its processes held and had read before anything was asked."""
    at_end: Footprint | None
    """And after the workload."""
    device_peak_gib: float | None
    """Resident memory of the engine on a CPU; on GPUs the filler sees to the cap."""


def by_budget(timed: TimedSide) -> list[str]:
    """The workloads, the smallest peak first."""
    return sorted(timed.peaks, key=lambda name: timed.peaks[name].peak_gib)


def cap_of(evaluation: Evaluation, pod: Pod, timed: TimedSide, name: str) -> Cap:
    """The cap of one workload's peak."""
    startup = timed.startup
    return Cap.of_peak(
        timed.peaks[name].peak_gib,
        rules=evaluation.rules,
        total_gib=pod.facts.total_gib,
        devices=evaluation.task.pod.devices,
        max_model_len=_longest_request(evaluation, timed, name),
        weights_gib=None if startup is None else startup.weights_gib,
        kv_block_bytes=0 if startup is None else startup.kv_block_bytes,
    )


def _longest_request(evaluation: Evaluation, timed: TimedSide, name: str) -> int | None:
    """Length of the workload's requests where the pool under its cap may not hold one of the full length, else None.
    Under the largest cap quality is asked as well, so that all that is asked of any server has to fit.

    vLLM refuses to start with a pool that cannot hold one request of its max_model_len; but the length is part of
    what its compile cache goes by, so that a server with another one compiles for a minute what is there already.
    """
    peak, startup = timed.peaks[name], timed.startup
    full = evaluation.task.engine.max_model_len or evaluation.rules.engine_flags.max_model_len
    held = float(full)
    if startup is not None and startup.kv_bytes_per_token:
        budget = budget_of(peak.peak_gib, evaluation.rules.engine, evaluation.task.pod.devices).budget_gib
        tokens = (budget - startup.weights_gib - startup.other_gib) * 2**30 / startup.kv_bytes_per_token
        if tokens >= ROOM * full:
            return None
        held = tokens / ROOM
    task, workloads = evaluation.task, evaluation.task.timed_workloads(evaluation.rules)
    lengths = {each: workload.input_len + workload.output_len for each, workload in workloads.items()}
    if name != by_budget(timed)[-1]:
        return lengths[name]
    quality = (
        task.kl.prompt_len + task.kl.max_tokens,
        *(plan.window_len for plan in task.perplexity.values()),
        *(_longest_item(kind, domain) for kind, domain in task.accuracy.domains.items()),
    )
    return max(*lengths.values(), min(max(quality), int(held)))


def _longest_item(kind: str, domain: Domain) -> int:
    """Tokens of an accuracy item, its answer included: of its text only a retrieval item's context is long."""
    context = domain.context_tokens if kind == "retrieval" else 0
    return context + QUESTION_TOKENS + domain.max_tokens


def capped_run(
    evaluation: Evaluation, server: Server, hidden: Hidden, timed: TimedSide, name: str
) -> CappedSide:
    """Runs the workload under the cap, on fresh prompts."""
    workload = evaluation.task.timed_workloads(evaluation.rules)[name]
    start_log, at_start = server.start_log(), server.footprint()
    capped, _ = time_workload(evaluation, server, name, workload, hidden.timed(name, workload, "capped"))
    rules = evaluation.rules.engine
    budget = budget_of(timed.peaks[name].peak_gib, rules, evaluation.task.pod.devices)
    return CappedSide(
        run=judge(budget, timed.runs[name][0], capped.run, workload, rules, held_by=server.held_by),
        start_log=start_log,
        at_start=at_start,
        at_end=server.footprint(),
        device_peak_gib=server.device_peak_gib() if evaluation.task.engine.device == "cpu" else None,
    )


def unhealthy(
    evaluation: Evaluation, server: Server, timed: TimedSide, name: str, error: EngineError
) -> CappedSide:
    """The verdict where the candidate did not serve the workload under its cap."""
    workload = evaluation.task.timed_workloads(evaluation.rules)[name]
    rules = evaluation.rules.engine
    budget = budget_of(timed.peaks[name].peak_gib, rules, evaluation.task.pod.devices)
    full = timed.runs[name][0]
    run = judge(budget, full, None, workload, rules, failure=str(error), held_by=server.held_by)
    return CappedSide(run=run, start_log="", at_start=None, at_end=None, device_peak_gib=None)
