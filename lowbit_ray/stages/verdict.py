"""Score: what was measured, as the public record. No pod is held, nothing is asked any more."""

from __future__ import annotations

import importlib.metadata

from lowbit_ray import __version__
from lowbit_ray.checkpoint.contract import Contract
from lowbit_ray.checkpoint.executed import ExecutedPrecision, executed_precision
from lowbit_ray.conduct import Fault
from lowbit_ray.errors import InfraError, LowbitError
from lowbit_ray.measure.audit import Audit
from lowbit_ray.measure.noise_floor import floor_of
from lowbit_ray.measure.workload import WorkloadRun, efficiency, speed_standard_error
from lowbit_ray.records import (
    Baseline,
    EnginePart,
    KLPart,
    MissingAudit,
    NoiseFloor,
    QualityPart,
    Record,
    Result,
    Solution,
    StageStatus,
    StageTime,
)
from lowbit_ray.rules import first_workload
from lowbit_ray.score import Measured, kl_reason, score
from lowbit_ray.stages.asked_again import Later, conduct_part
from lowbit_ray.stages.context import Evaluation, step_times
from lowbit_ray.stages.cost import gpu_hours
from lowbit_ray.stages.floor import measurement_of, read_runs
from lowbit_ray.stages.on_pod import Efficiency
from lowbit_ray.stages.on_pod import Measured as OnPod
from lowbit_ray.stages.quality import Scored
from lowbit_ray.stats import geometric_mean_error
from lowbit_ray.submission import IN_TIME, STAGES, now

__all__ = ["failed_record", "scored_record"]

OLD_SCENARIOS = ("memory_capped", "offline", "online_slo")
"""Scenarios of the arena's earlier rules, which its records still name."""
DIGITS = 4
"""Derived numbers are printed so, as the arena's are."""


def scored_record(evaluation: Evaluation, contract: Contract, on_pod: OnPod, quality: Scored) -> Record:
    """The record of a submission that was measured wholly."""
    result = _result(evaluation, contract, on_pod, quality)
    status = "done" if result.admitted else "rejected"
    return _record(evaluation, status, contract=contract, efficiency=on_pod.efficiency, result=result)


def failed_record(
    evaluation: Evaluation, status: str, error: LowbitError | str, contract: Contract | None
) -> Record:
    """The record of one that was not: `rejected` scores 0, `failed` has no score."""
    done = evaluation.finished("efficiency", Efficiency)
    fault = Fault.of(error) if isinstance(error, LowbitError) else None
    if fault is not None and contract is not None and not contract.kept:
        fault = fault.model_copy(update={"rule": contract.broken[0].rule})
    return _record(evaluation, status, contract=contract, efficiency=done, error=str(error), fault=fault)


def _result(evaluation: Evaluation, contract: Contract, on_pod: OnPod, quality: Scored) -> Result:
    eff, asked, public = on_pod.efficiency, on_pod.asked, quality.comparison.public
    candidate, anchor = eff.candidate, eff.anchor.timed
    if contract.precision is None:
        raise InfraError("the contract was kept without a precision", where=evaluation.submission.id)
    measured = _measured(evaluation, on_pod, quality)
    scored = score(measured, evaluation.rules).printed(DIGITS)
    first = first_workload(measured.peaks_gib)
    errors = _speed_errors(evaluation, candidate.runs, anchor.runs)
    return Result(
        **dict(scored),
        admitted=measured.broken is None,
        anchor_efficiency=measured.anchor_efficiency,
        anchor_peak_memory=anchor.peaks,
        bf16_peak_gib=measured.anchor_peaks_gib[first],
        efficiency=measured.efficiency,
        engine=_engine(evaluation, contract, eff),
        gpu_hours=round(gpu_hours(evaluation), DIGITS),
        kl=KLPart(**asked.kl.model_dump(), ppl=asked.perplexity),
        length_shift=public.length_shift,
        mean_drop=public.mean_drop,
        peak_gib=measured.peaks_gib[first],
        peak_memory=candidate.peaks,
        precision=contract.precision,
        quality=QualityPart(**public.quality.model_dump()),
        speed_serve=scored.speeds[first],
        task_id=evaluation.task.id,
        timed_audit=_audits(eff.anchor.audits),
        anchor=Baseline(startup=anchor.startup, start_seconds=anchor.start_seconds),
        anchor_runs=anchor.runs,
        accuracy_items=public.items,
        executed=_executed(eff, contract),
        foreign_cpu={
            name: round(max(share, anchor.foreign_cpu[name]), DIGITS)
            for name, share in candidate.foreign_cpu.items()
        },
        mean_drop_se=public.mean_drop_se,
        noise_floor=_noise_floor(evaluation, on_pod),
        runs=candidate.runs,
        speed_floor=measured.speed_floor,
        speeds_se=errors,
        speed_se=geometric_mean_error(list(errors.values())),
    )


def _measured(evaluation: Evaluation, on_pod: OnPod, quality: Scored) -> Measured:
    """What the score is computed from."""
    eff, kl, public = on_pod.efficiency, on_pod.asked.kl, quality.comparison.public
    candidate, anchor, rules = eff.candidate, eff.anchor.timed, evaluation.rules
    return Measured(
        efficiency=_efficiencies(evaluation, candidate.runs),
        anchor_efficiency=_efficiencies(evaluation, anchor.runs),
        peaks_gib={name: peak.peak_gib for name, peak in candidate.peaks.items()},
        anchor_peaks_gib={name: peak.peak_gib for name, peak in anchor.peaks.items()},
        length_shift=public.length_shift,
        mean_drop=public.mean_drop,
        mean_drop_se=public.mean_drop_se,
        kl=kl.kl,
        kl_se=kl.kl_se,
        tier=public.quality.tier,
        speed_floor=evaluation.task.floor(rules),
        broken=kl_reason(kl.kl, rules.rules.kl_ceiling),
    )


def _engine(evaluation: Evaluation, contract: Contract, eff: Efficiency) -> EnginePart:
    """The candidate's server."""
    candidate = eff.candidate
    return EnginePart(
        audit=_audits(eff.anchor.audits),
        budget=eff.budget,
        hard_cap=all(run.healthy for run in eff.budget.values()),
        startup=candidate.startup,
        start_seconds=candidate.start_seconds,
        stored_gib=contract.stored_gib,
        conduct=conduct_part(eff.checked, evaluation.finished("later", Later), candidate, eff.anchor.timed),
    )


def _record(
    evaluation: Evaluation,
    status: str,
    *,
    contract: Contract | None,
    efficiency: Efficiency | None,
    result: Result | None = None,
    error: str | None = None,
    fault: Fault | None = None,
) -> Record:
    submission = evaluation.submission
    read = contract.precision.label if contract and contract.precision else None
    return Record.model_validate(
        {
            "agent": submission.agent,
            "created_at": submission.created_at,
            "error": error,
            "fault": fault,
            "id": submission.id,
            "participant": submission.participant,
            "partition": submission.partition,
            "result": result,
            "solution": Solution(
                checkpoint=str(submission.checkpoint),
                declared_precision=submission.declared_precision is not None,
                detected_precision=read,
                method=submission.method,
                precision=submission.declared_precision or read,
            ),
            "split": submission.split,
            "stages": _stages(evaluation, finished=result is not None),
            "status": status,
            "task_id": submission.task_id,
            "track": submission.track,
            "updated_at": now(),
            "charged_hours": gpu_hours(evaluation),
            "findings": tuple(str(finding) for finding in contract.findings) if contract else (),
            "host": efficiency.host if efficiency else None,
            "isolation": efficiency.candidate.isolation if efficiency else evaluation.isolation,
            "releases": _releases(),
            "rules_version": evaluation.rules.version,
            "time_line": _time_line(evaluation),
        }
    )


def _efficiencies(evaluation: Evaluation, runs: dict[str, tuple[WorkloadRun, ...]]) -> dict[str, float]:
    """Mean over the repeats of each workload."""
    workloads = evaluation.task.timed_workloads(evaluation.rules)
    values = {name: [efficiency(run, workloads[name]) for run in repeats] for name, repeats in runs.items()}
    return {name: sum(each) / len(each) for name, each in values.items()}


def _speed_errors(
    evaluation: Evaluation,
    candidate: dict[str, tuple[WorkloadRun, ...]],
    anchor: dict[str, tuple[WorkloadRun, ...]],
) -> dict[str, float | None]:
    workloads = evaluation.task.timed_workloads(evaluation.rules)
    return {
        name: speed_standard_error(
            [efficiency(run, workload) for run in candidate[name]],
            [efficiency(run, workload) for run in anchor[name]],
        )
        for name, workload in workloads.items()
    }


def _executed(eff: Efficiency, contract: Contract) -> ExecutedPrecision | None:
    startup, anchor = eff.candidate.startup, eff.anchor.timed.startup
    if startup is None or contract.precision is None:
        return None
    return executed_precision(
        contract.precision,
        startup.kv_cache_dtype,
        eff.candidate.start_log,
        kv_bytes_per_token=startup.kv_bytes_per_token,
        bf16_kv_bytes_per_token=anchor.kv_bytes_per_token if anchor else None,
    )


def _noise_floor(evaluation: Evaluation, on_pod: OnPod) -> NoiseFloor:
    """The anchor's probe of itself, and what whole evaluations of the anchor on such a device have read so far."""
    eff, probe = on_pod.efficiency, on_pod.anchor.spoken.floor
    measurement = measurement_of(eff.host, eff.anchor.timed.startup, evaluation.rules.version)
    runs = read_runs(evaluation.ledger, evaluation.task.id).runs
    return NoiseFloor(kl=probe.kl, kl_se=probe.kl_se, repeated=floor_of(runs, measurement))


def _audits(audits: dict[str, Audit]) -> dict[str, Audit | MissingAudit]:
    return {**audits, **{name: MissingAudit() for name in OLD_SCENARIOS if name not in audits}}


def _stages(evaluation: Evaluation, *, finished: bool) -> tuple[StageStatus, ...]:
    names = {step.name for step in step_times(evaluation.ledger, evaluation.submission.id)}
    if finished:
        names |= set(STAGES)
    statuses = [
        StageStatus.model_validate({"name": stage, "status": "done" if stage in names else "waiting"})
        for stage in STAGES
    ]
    first_missing = next((stage for stage in IN_TIME if stage not in names), None)
    return tuple(
        status.model_copy(update={"status": "failed"})
        if status.name == first_missing and not finished
        else status
        for status in statuses
    )


def _time_line(evaluation: Evaluation) -> tuple[StageTime, ...]:
    steps = step_times(evaluation.ledger, evaluation.submission.id)
    return tuple(
        StageTime(
            name=step.name,
            started_at=step.started_at,
            seconds=round(step.seconds, 3),
            pod_seconds=round(step.pod_seconds, 3),
            busy_seconds=round(step.busy_seconds, 3),
        )
        for step in steps
    )


def _releases() -> dict[str, str]:
    """Releases of what computes the numbers on our side; the engine's own is in its start-up accounts."""
    found = {"lowbit_ray": __version__}
    for name in ("ray", "numpy", "pydantic", "aiohttp"):
        found[name] = importlib.metadata.version(name)
    return found
