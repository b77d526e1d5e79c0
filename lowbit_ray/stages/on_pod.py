"""Everything that needs the pod, in one stretch: it is given back before anything is scored.

    candidate timed, asked again → anchor timed, audit, its reusable part → candidate under each cap, with the
    largest its quality

Two servers, and one for each workload. Steps that an earlier attempt finished on the same silicon are not
repeated; on other silicon both sides are timed again, since a speed is a ratio within one pod, unless all that is
timed is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowbit_ray.engines.host import Host
from lowbit_ray.engines.pod import Pod, open_pod
from lowbit_ray.errors import EngineError, LedgerError
from lowbit_ray.measure.budget import BudgetRun
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.anchor import AnchorSide, audit_breaches, time_and_audit, withheld_breaches
from lowbit_ray.stages.asked_again import Checked, Later, ask_later, check_timed, logprobs_needed
from lowbit_ray.stages.build import Built
from lowbit_ray.stages.capped import CappedSide, by_budget, cap_of, capped_run, unhealthy
from lowbit_ray.stages.claim import ask_unless_claimed, wait_until_asked
from lowbit_ray.stages.conduct import (
    against_anchor,
    capped_breaches,
    checked_breaches,
    keep_rules,
    later_breaches,
    timed_breaches,
)
from lowbit_ray.stages.context import Evaluation, step_times
from lowbit_ray.stages.efficiency import TimedSide, time_side
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.quality import Asked, ask_candidate
from lowbit_ray.stages.reference import AnchorPart, load_anchor_part, reference_key
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
    checked: Checked | None = None
    """What the timed candidate was asked again."""


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
            scored=evaluation.submission.split == "test",
            since=step_times(evaluation.ledger, evaluation.submission.id)[0].started_at.timestamp(),
        ) as pod:
            evaluation.held_s, evaluation.busy_s = (lambda: pod.held_s), (lambda: pod.busy_s)
            evaluation.tenure.meter = lambda: (pod.held_s, pod.gpus)
            evaluation.tenure.tell_pod("held")
            try:
                if efficiency is None:
                    efficiency, asked = _measure(evaluation, built, hidden, pod)
                else:
                    asked = _rest(evaluation, built, hidden, pod, efficiency)
            finally:
                held = pod.held_s
                evaluation.tenure.meter = lambda: (held, pod.gpus)
                evaluation.held_s, evaluation.busy_s = (lambda: held), (lambda: 0.0)
        evaluation.tenure.tell_pod("after")
    anchor = _anchor_part(evaluation, hidden, asked.reference or efficiency.reference)
    return Measured(efficiency=efficiency, asked=asked, anchor=anchor)


def _measure(evaluation: Evaluation, built: Built, hidden: Hidden, pod: Pod) -> tuple[Efficiency, Asked]:
    candidate, checked = _candidate(evaluation, built, hidden, pod)
    with serving(evaluation, built, pod, "anchor", "anchor") as server:
        anchor = evaluation.step(
            f"anchor-{pod.facts.name}",
            AnchorSide,
            lambda: time_and_audit(evaluation, server, hidden, candidate),
        )
        keep_rules(audit_breaches(evaluation, anchor.audits))
        keep_rules(withheld_breaches(evaluation, candidate, anchor.timed))
        keep_rules(against_anchor(evaluation, candidate, anchor.timed))
        key = reference_key(evaluation, built, hidden, pod.facts.kind, _release(anchor.timed, evaluation))
        ask_unless_claimed(evaluation, server, hidden, key)
    budget: dict[str, BudgetRun] = {}
    for workload in by_budget(candidate):
        if workload == by_budget(candidate)[-1]:
            wait_until_asked(evaluation, built, pod, hidden, key)
        cap = cap_of(evaluation, pod, candidate, workload)
        with serving(evaluation, built, pod, "candidate", f"capped-{workload}", cap=cap) as server:
            capped = evaluation.step(
                f"capped-{workload}-{pod.facts.name}",
                CappedSide,
                lambda: _capped(evaluation, server, hidden, candidate, workload),  # noqa: B023  # called at once
            )
            keep_rules(capped_breaches(evaluation, candidate, capped, workload, built.candidate.stored_gib))
            budget[f"{workload}@{capped.run.factor:g}"] = capped.run
            if workload == by_budget(candidate)[-1]:
                efficiency = evaluation.step(
                    "efficiency",
                    Efficiency,
                    lambda: Efficiency(
                        host=_host(pod, anchor.timed),
                        candidate=candidate,
                        anchor=anchor,
                        budget=budget,
                        reference=key,
                        checked=checked,
                    ),
                )
                asked = _asked(evaluation, server, hidden, candidate, key)
    return efficiency, asked


def _rest(evaluation: Evaluation, built: Built, hidden: Hidden, pod: Pod, efficiency: Efficiency) -> Asked:
    """What is left where an earlier attempt has timed both sides, wherever that was: nothing is timed again.

    Quality is compared with what the anchor said on this kind of device, which need not be that of the timed runs.
    """
    candidate, release = efficiency.candidate, _release(efficiency.anchor.timed, evaluation)
    key = reference_key(evaluation, built, hidden, pod.facts.kind, release)
    evaluation.isolation = candidate.isolation
    wait_until_asked(evaluation, built, pod, hidden, key)
    workload = by_budget(candidate)[-1]
    cap = cap_of(evaluation, pod, candidate, workload)
    with serving(evaluation, built, pod, "candidate", f"capped-{workload}", cap=cap) as server:
        return _asked(evaluation, server, hidden, candidate, key)


def _candidate(evaluation: Evaluation, built: Built, hidden: Hidden, pod: Pod) -> tuple[TimedSide, Checked]:
    """The candidate timed, then asked again by the same server; a rule seen broken ends it here."""
    with serving(evaluation, built, pod, "candidate", "timed") as server:
        timed = evaluation.step(
            f"timed-{pod.facts.name}", TimedSide, lambda: time_side(evaluation, server, hidden)
        )
        evaluation.isolation = timed.isolation
        keep_rules(timed_breaches(evaluation, timed, built.candidate.stored_gib))
        with logprobs_needed():
            checked = evaluation.step(
                f"checked-{pod.facts.name}", Checked, lambda: check_timed(evaluation, server, hidden, timed)
            )
    keep_rules(checked_breaches(checked, evaluation.task.conduct))
    return timed, checked


def _asked(evaluation: Evaluation, server: Server, hidden: Hidden, candidate: TimedSide, key: str) -> Asked:
    """The candidate asked once more what it said while it was timed, then its quality."""
    later = evaluation.step("later", Later, lambda: ask_later(evaluation, server, hidden, candidate))
    keep_rules(later_breaches(later, evaluation.task.conduct))
    part = _anchor_part(evaluation, hidden, key)

    def ask() -> Asked:
        return ask_candidate(evaluation, server, hidden, part).model_copy(update={"reference": key})

    with logprobs_needed():
        return evaluation.step("quality", Asked, ask)


def _anchor_part(evaluation: Evaluation, hidden: Hidden, key: str) -> AnchorPart:
    part = load_anchor_part(evaluation.ledger, key, list(hidden.windows))
    if part is None:
        raise LedgerError("the anchor's reusable part is gone", where=key)
    return part


def _capped(
    evaluation: Evaluation, server: Server, hidden: Hidden, candidate: TimedSide, workload: str
) -> CappedSide:
    try:
        return capped_run(evaluation, server, hidden, candidate, workload)
    except EngineError as error:
        return unhealthy(evaluation, server, candidate, workload, error)


def _host(pod: Pod, timed: TimedSide) -> Host:
    """The pod's host with the release of vLLM that really ran: it may stand in an environment of its own."""
    if timed.startup is None:
        return pod.facts.host
    return pod.facts.host.model_copy(update={"vllm": timed.startup.vllm_version})


def _release(timed: TimedSide, evaluation: Evaluation) -> str:
    return timed.startup.vllm_version if timed.startup else evaluation.rules.vllm.release
