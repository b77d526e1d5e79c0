"""Everything that needs the pod, in one stretch: it is given back before anything is scored.

    candidate timed → anchor timed, audit, its reusable part → candidate under each cap, the largest with quality

Four servers and one for each further workload. Steps that an earlier attempt finished on the same silicon are not
repeated; on other silicon both sides are timed again, since a speed is a ratio within one pod.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowbit_ray.engines.host import Host
from lowbit_ray.engines.pod import Pod, open_pod
from lowbit_ray.errors import ContractError, EngineAnswerError, EngineError, EngineRulesError
from lowbit_ray.measure.budget import BudgetRun
from lowbit_ray.measure.logprobs import lacks_logprobs
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.anchor import AnchorSide, audit_reason, time_and_audit, withheld_reason
from lowbit_ray.stages.build import Built
from lowbit_ray.stages.capped import by_budget, cap_of, capped_run, unhealthy
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide, offload_reason, time_side
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.quality import Asked, ask_candidate
from lowbit_ray.stages.reference import (
    AnchorPart,
    ask_anchor,
    load_anchor_part,
    reference_key,
    store_anchor_part,
)
from lowbit_ray.stages.serving import Server, serving

__all__ = ["Efficiency", "Measured", "measure_on_pod"]


class Efficiency(_Frozen):
    """The efficiency stage's outcome; holds hidden outputs."""

    host: Host
    candidate: TimedSide
    anchor: AnchorSide
    budget: dict[str, BudgetRun]
    reference: str
    """Key of the anchor's reusable part."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the pod was needed for."""

    efficiency: Efficiency
    asked: Asked
    anchor: AnchorPart


def measure_on_pod(evaluation: Evaluation, built: Built, hidden: Hidden) -> Measured:
    """Measures all that needs the pod.

    Raises EngineRulesError or ContractError as soon as a rule is seen broken, so that no more GPU time is spent;
    EngineError where the candidate's server fails; InfraError for faults of our own.
    """
    efficiency = evaluation.finished("efficiency", Efficiency)
    asked = evaluation.finished("quality", Asked)
    if efficiency is None or asked is None:
        evaluation.watch.progress("waiting for a pod", 0, 0)
        with open_pod(
            evaluation.task.pod,
            device=evaluation.task.engine.device,
            ledger=evaluation.ledger,
            found_by=evaluation.submission.id,
            waiting=evaluation.waiting,
        ) as pod:
            evaluation.held_s, evaluation.busy_s = (lambda: pod.held_s), (lambda: pod.busy_s)
            evaluation.tenure.meter = lambda: (pod.held_s, pod.gpus)
            evaluation.tenure.tell_pod("held")
            try:
                efficiency, asked = _measure(evaluation, built, hidden, pod)
            finally:
                held = pod.held_s
                evaluation.tenure.meter = lambda: (held, pod.gpus)
                evaluation.held_s, evaluation.busy_s = (lambda: held), (lambda: 0.0)
        evaluation.tenure.tell_pod("after")
    anchor = load_anchor_part(evaluation.ledger, efficiency.reference, list(hidden.windows))
    if anchor is None:
        raise EngineError("the anchor's reusable part is gone", where=efficiency.reference)
    return Measured(efficiency=efficiency, asked=asked, anchor=anchor)


def _measure(evaluation: Evaluation, built: Built, hidden: Hidden, pod: Pod) -> tuple[Efficiency, Asked]:
    name = pod.facts.name
    with serving(evaluation, built, pod, "candidate", "timed") as server:
        candidate = evaluation.step(f"timed-{name}", TimedSide, lambda: time_side(evaluation, server, hidden))
    evaluation.isolation = candidate.isolation
    _keep_rules(offload_reason(candidate))
    with serving(evaluation, built, pod, "anchor", "anchor") as server:
        anchor = evaluation.step(
            f"anchor-{name}", AnchorSide, lambda: time_and_audit(evaluation, server, hidden, candidate)
        )
        _keep_rules(audit_reason(evaluation, anchor.audits))
        _keep_rules(withheld_reason(evaluation, candidate, anchor.timed))
        key = reference_key(evaluation, built, pod.facts.kind, _release(anchor.timed, evaluation))
        part = _anchor_part(evaluation, server, hidden, key)
    budget: dict[str, BudgetRun] = {}
    for workload in by_budget(candidate):
        cap = cap_of(evaluation, pod, candidate, workload)
        with serving(evaluation, built, pod, "candidate", f"capped-{workload}", cap=cap) as server:
            run = evaluation.step(
                f"capped-{workload}-{name}",
                BudgetRun,
                lambda: _capped(evaluation, server, hidden, candidate, workload),  # noqa: B023  # called at once
            )
            _keep_rules(None if run.healthy else f"hard cap of {workload}: {run.reason}")
            budget[f"{workload}@{run.factor:g}"] = run
            if workload == by_budget(candidate)[-1]:
                efficiency = evaluation.step(
                    "efficiency",
                    Efficiency,
                    lambda: Efficiency(
                        host=pod.facts.host, candidate=candidate, anchor=anchor, budget=budget, reference=key
                    ),
                )
                asked = evaluation.step(
                    "quality",
                    Asked,
                    lambda: _asked(evaluation, server, hidden, part),
                )
    return efficiency, asked


def _anchor_part(evaluation: Evaluation, server: Server, hidden: Hidden, key: str) -> AnchorPart:
    """The anchor's reusable part: kept by an earlier evaluation, or asked now and kept for later ones."""
    part = load_anchor_part(evaluation.ledger, key, list(hidden.windows))
    if part is None:
        part = ask_anchor(evaluation, server, hidden)
        store_anchor_part(evaluation.ledger, key, part)
    return part


def _capped(
    evaluation: Evaluation, server: Server, hidden: Hidden, candidate: TimedSide, workload: str
) -> BudgetRun:
    try:
        return capped_run(evaluation, server, hidden, candidate, workload)
    except EngineError as error:
        return unhealthy(evaluation, candidate, workload, error)


def _asked(evaluation: Evaluation, server: Server, hidden: Hidden, part: AnchorPart) -> Asked:
    try:
        return ask_candidate(evaluation, server, hidden, part)
    except EngineAnswerError as error:
        if lacks_logprobs(error):  # rules: contract.kl_rule
            raise ContractError(
                error.summary,
                where=error.where,
                found=error.found,
                expected=error.expected,
                remedy=error.remedy,
            ) from error
        raise


def _keep_rules(reason: str | None) -> None:
    if reason is not None:
        raise EngineRulesError(reason)


def _release(timed: TimedSide, evaluation: Evaluation) -> str:
    return timed.startup.vllm_version if timed.startup else evaluation.rules.vllm.release
