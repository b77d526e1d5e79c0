"""The hard cap: is the candidate as good in the memory that it claims to need? (The rules' `engine.budget_rule`.)

budget = factor · the workload's peak; cap = budget + what context and graphs take beyond. Under the cap the
candidate is healthy when it runs as many requests at once as with the whole device, or keeps its rate.
"""

from __future__ import annotations

from lowbit_ray.engines.memory_limit import HeldBy
from lowbit_ray.measure.workload import WorkloadRun, efficiency
from lowbit_ray.rules import EngineRules, Workload, _Described, _Frozen

__all__ = ["Budget", "BudgetRun", "budget_of", "judge"]


class Budget(_Frozen):
    """How much memory a capped run may use, GiB."""

    factor: float
    budget_gib: float
    """factor · peak: what the engine is told to stay within."""
    cap_gib: float
    """budget + a context on each device: what the device leaves it."""


class BudgetRun(_Described):
    """One workload served again under its hard cap."""

    budget_gib: float
    cap_gib: float
    factor: float
    """budget_gib over the peak that was measured."""
    full_running: float | None
    """Most requests at once with the whole device; None where the engine does not say."""
    healthy: bool
    running: float | None
    """Most requests at once under the cap."""
    value: float
    """The workload's efficiency under the cap; 0 when it did not finish."""
    reason: str | None
    """Why it is not healthy."""
    held_by: HeldBy | None = None
    """What kept it within the cap: a filler process on the GPU; on a CPU a control group (the kernel), or our watch of
    its resident memory. None where it did not start, or where the cap is no less than the whole device."""


def budget_of(peak_gib: float, rules: EngineRules, devices: int) -> Budget:
    """The budget and cap that follow from a workload's peak, over all `devices` together."""
    return Budget(
        factor=rules.budget_factor,
        budget_gib=rules.budget_gib(peak_gib),
        cap_gib=rules.cap_gib(peak_gib, devices),
    )


def judge(
    budget: Budget,
    full: WorkloadRun,
    capped: WorkloadRun | None,
    workload: Workload,
    rules: EngineRules,
    *,
    failure: str = "",
    held_by: HeldBy | None = None,
) -> BudgetRun:
    """Compares the capped run with the one on the whole device.

    `capped` is None when the engine did not start or finish under the cap; `failure` says why.
    """
    value = efficiency(capped, workload) if capped else 0.0
    rate = value / efficiency(full, workload)
    running = capped.running if capped else 0.0
    as_many = running is not None and full.running is not None and 0 < full.running <= running
    healthy = capped is not None and (as_many or rate >= rules.budget_rate)
    reason = None
    if capped is None:
        reason = f"did not serve the workload under {budget.cap_gib:.3f} GiB: {failure or 'no reason given'}"
    elif not healthy:
        reason = (
            f"under {budget.cap_gib:.3f} GiB ran {_count(running)} requests at once instead of "
            f"{_count(full.running)} and kept {rate:.3f} of its rate, less than {rules.budget_rate}"
        )
    return BudgetRun(
        budget_gib=budget.budget_gib,
        cap_gib=budget.cap_gib,
        factor=budget.factor,
        full_running=full.running,
        healthy=healthy,
        running=running,
        value=value,
        reason=reason,
        held_by=held_by,
    )


def _count(running: float | None) -> str:
    return "an unknown number of" if running is None else f"{running:g}"
