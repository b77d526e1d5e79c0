"""The engine rules at work: which of them is broken by what the candidate said, held and read.

A rule is judged as soon as it can be, so that no more of the pod's time is spent; the limits stand in conduct.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lowbit_ray.conduct import Breach, ConductLimits
from lowbit_ray.engines.accounts import offload_findings
from lowbit_ray.engines.footprint import Footprint
from lowbit_ray.measure.runs import WorkloadRun
from lowbit_ray.stages.asked_again import Checked, Later
from lowbit_ray.stages.capped import CappedSide
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide

__all__ = [
    "against_anchor",
    "capped_breaches",
    "checked_breaches",
    "keep_rules",
    "later_breaches",
    "timed_breaches",
]

FEW = 4
"""Requests at once, below which one that has just begun or ended makes a peak of its own."""


def later_breaches(later: Later, limits: ConductLimits) -> Iterator[Breach]:
    """Of a later server's memory."""
    if breach := later.replay.breach("a later server of the submission", limits):
        yield breach


def keep_rules(breaches: Iterable[Breach]) -> None:
    """Raises EngineRulesError for the first of them."""
    for breach in breaches:
        raise breach.error


def timed_breaches(evaluation: Evaluation, timed: TimedSide, stored_gib: float) -> Iterator[Breach]:
    """Of the timed server: host memory, weights read late, other hosts."""
    limits, on_gpu = evaluation.task.conduct, evaluation.task.engine.device == "cuda"
    if on_gpu:
        reported = () if timed.startup is None else timed.startup.offload
        yield from _offload(timed.start_log, "the timed server's start-up log", reported)
    if timed.at_start is None or timed.at_end is None:
        return
    if on_gpu:
        grown = timed.at_end.host_gib - timed.at_start.host_gib
        yield from _grown(grown, limits, "while timed", "more than when it started")
    yield from _watched(timed.at_start, timed.at_end, limits, stored_gib, "while timed")


def checked_breaches(checked: Checked, limits: ConductLimits) -> Iterator[Breach]:
    """Of what it was asked again."""
    share = checked.texts_disagree
    if share is not None and share > limits.text_share:
        yield Breach(
            rule="token counts",
            where="timed outputs",
            seen=f"{share:.0%} of the outputs have a text that is not their ids'",
            limit=f"≤ {limits.text_share:.0%}",
        )
    if breach := checked.replay.breach("the timed server", limits):
        yield breach
    yield from checked.consistency.breaches(limits)


def against_anchor(evaluation: Evaluation, candidate: TimedSide, anchor: TimedSide) -> Iterator[Breach]:
    """Memory that its accounts leave out, or that it keeps on the host, beside BF16's on the same pod."""
    limits, on_gpu = evaluation.task.conduct, evaluation.task.engine.device == "cuda"
    mine, theirs = _unaccounted(candidate), _unaccounted(anchor)
    allowed = limits.unaccounted_gib if on_gpu else limits.unaccounted_host_gib
    if mine is not None and mine > max(theirs or 0.0, 0.0) + allowed:
        yield Breach(
            rule="memory accounts",
            where="the timed server",
            seen=f"the device counts {mine:.2f} GiB more than the engine's accounts",
            limit=f"≤ {allowed:g} GiB more than for BF16 ({theirs or 0.0:.2f} GiB)",
        )
    yield from _gauges(candidate, anchor, limits)
    if on_gpu and candidate.at_end is not None and anchor.at_end is not None:
        beyond = candidate.at_end.host_gib - anchor.at_end.host_gib
        if beyond > limits.host_beyond_gib:
            yield Breach(
                rule="host memory",
                where="the timed server",
                seen=f"{beyond:.2f} GiB of host memory more than BF16's server",
                limit=f"≤ {limits.host_beyond_gib:g} GiB",
            )


def capped_breaches(
    evaluation: Evaluation, timed: TimedSide, capped: CappedSide, name: str, stored_gib: float
) -> Iterator[Breach]:
    """Of a server under its cap: what it moved to the host to fit, and whether it fits."""
    limits, on_gpu = evaluation.task.conduct, evaluation.task.engine.device == "cuda"
    where = f"the server under the cap of {name}"
    if on_gpu:
        yield from _offload(capped.start_log, f"start-up log of {where}")
        if capped.at_end is not None and timed.at_end is not None:
            moved = capped.at_end.host_gib - timed.at_end.host_gib
            yield from _grown(moved, limits, where, "more than without a cap")
    if capped.at_start is not None and capped.at_end is not None:
        yield from _watched(capped.at_start, capped.at_end, limits, stored_gib, where)
    if timed.startup is None and (capped.device_peak_gib or 0.0) > capped.run.cap_gib:
        yield Breach(
            rule="hard cap",
            where=where,
            seen=f"{capped.device_peak_gib:.3f} GiB",
            limit=f"≤ {capped.run.cap_gib:.3f} GiB",
        )
    if not capped.run.healthy:
        yield Breach(
            rule="hard cap",
            where=where,
            seen=capped.run.reason or "not healthy",
            limit=f"as many requests at once, or {evaluation.rules.engine.budget_rate:g} of its rate",
        )


def _offload(log: str, where: str, reported: tuple[str, ...] = ()) -> Iterator[Breach]:
    """What the log says; `reported` is what the accounts found in it and in the engine's own configuration."""
    if found := dict.fromkeys((*reported, *offload_findings(log))):
        yield Breach(rule="offload", where=where, seen="; ".join(found), limit="nothing in host memory")


def _grown(gib: float, limits: ConductLimits, where: str, than: str) -> Iterator[Breach]:
    if gib > limits.host_growth_gib:
        yield Breach(
            rule="host memory",
            where=where,
            seen=f"{gib:.2f} GiB of host memory {than}",
            limit=f"≤ {limits.host_growth_gib:g} GiB",
        )


def _watched(
    start: Footprint, end: Footprint, limits: ConductLimits, stored_gib: float, where: str
) -> Iterator[Breach]:
    """What was read and opened since the first answer, and whom it talks to."""
    most = max(limits.late_read_gib, limits.late_read_share * stored_gib)
    if start.read_gib is not None and end.read_gib is not None and end.read_gib - start.read_gib > most:
        yield Breach(
            rule="second model",
            where=where,
            seen=f"{end.read_gib - start.read_gib:.3f} GiB read after the first answer",
            limit=f"≤ {most:.3f} GiB",
        )
    if end.weight_files > start.weight_files:
        yield Breach(
            rule="second model",
            where=where,
            seen=f"{end.weight_files - start.weight_files} files with weights opened after the first answer",
            limit="none",
        )
    if end.peers:
        yield Breach(
            rule="network", where=where, seen=f"{end.peers} connections to other hosts", limit="none"
        )


def _gauges(candidate: TimedSide, anchor: TimedSide, limits: ConductLimits) -> Iterator[Breach]:
    """KV tokens in use, by both sides' gauges: the same prompts fill as many."""
    for name, runs in candidate.runs.items():
        mine = max((_tokens_a_request(candidate, run) for run in runs), default=0.0)
        theirs = max((_tokens_a_request(anchor, run) for run in anchor.runs[name]), default=0.0)
        if mine and mine < limits.kv_share * theirs:
            yield Breach(
                rule="memory accounts",
                where=f"workload {name}: vllm:kv_cache_usage_perc",
                seen=f"{mine:.0f} tokens a running request, {mine / theirs:.2f} of BF16's",
                limit=f"≥ {limits.kv_share:g} of BF16's ({theirs:.0f} tokens)",
            )


def _tokens_a_request(side: TimedSide, run: WorkloadRun) -> float:
    """0 where the engine does not say, or ran too few at once for a peak that is read from time to time."""
    if side.startup is None or run.kv_usage is None or (run.running or 0) < FEW:
        return 0.0
    return run.kv_usage * side.startup.kv_cache_tokens / (run.running or 1)


def _unaccounted(side: TimedSide) -> float | None:
    """GiB that the device counts beyond the engine's accounts; None where it keeps none.

    A GPU's pool is allocated wholly, a host's page by page as it is used.
    """
    if side.startup is None:
        return None
    differences = []
    for peak in side.peaks.values():
        pool = side.startup.kv_cache_gib if side.startup.device == "cuda" else (peak.kv_gib or 0.0)
        if peak.device_peak_gib is not None:
            differences.append(
                peak.device_peak_gib - side.startup.weights_gib - side.startup.other_gib - pool
            )
    return max(differences, default=None)
