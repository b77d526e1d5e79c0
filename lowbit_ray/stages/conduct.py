"""The engine rules at work: what the candidate is asked and looked at for, and which rule that breaks.

On the server that was timed: prompts asked again, timed prompts asked as probes, what its processes hold and have
read. On the last server: the prompts of the first one once more. Of each server its log and its host memory. All of
it takes seconds of the pod, which the record's time line shows as steps of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from lowbit_ray.conduct import Breach, ConductLimits
from lowbit_ray.engines.accounts import offload_findings
from lowbit_ray.engines.footprint import Footprint
from lowbit_ray.errors import ContractError, EngineAnswerError
from lowbit_ray.measure.consistency import Consistency, texts_disagree
from lowbit_ray.measure.logprobs import lacks_logprobs
from lowbit_ray.measure.prompts import cut_prompts
from lowbit_ray.measure.replay import Replay, fresh_needed
from lowbit_ray.records import Conduct
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.anchor import end_tokens
from lowbit_ray.stages.capped import CappedSide
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.questions import AskAgain, CheckConsistency
from lowbit_ray.stages.serving import Server

__all__ = [
    "Checked",
    "Later",
    "against_anchor",
    "ask_later",
    "capped_breaches",
    "check_timed",
    "checked_breaches",
    "conduct_part",
    "keep_rules",
    "later_breaches",
    "logprobs_needed",
    "timed_breaches",
]

SAMPLES = 4
"""Timed outputs of each workload, and probes, that are asked again."""


class Checked(_Frozen):
    """What the timed server was asked again."""

    replay: Replay
    consistency: Consistency
    texts_disagree: float | None
    """Share of the timed outputs whose text is not that of their ids; None without ids."""


class Later(_Frozen):
    """The same prompts on the last server of the submission, which may have kept answers in a file."""

    replay: Replay


def check_timed(evaluation: Evaluation, server: Server, hidden: Hidden, timed: TimedSide) -> Checked:
    """Asks the timed server again; EngineAnswerError where it answers wrongly, ContractError without
    log-probabilities."""
    task = evaluation.task
    question = CheckConsistency(
        timed={name: outputs[:SAMPLES] for name, outputs in timed.outputs.items()},
        probes=hidden.probes[:SAMPLES],
        tokenizer=hidden.tokenizer,
        eos_ids=end_tokens(hidden.source),
        top_k=task.kl.top_k,
        timeout_s=task.engine.request_timeout_s,
    )
    return Checked(
        replay=_replay(evaluation, server, hidden, timed, "replay"),
        consistency=server.ask(question, "asking what was timed again"),
        texts_disagree=max(
            (
                share
                for outputs in timed.outputs.values()
                if (share := texts_disagree(outputs, hidden.tokenizer)) is not None
            ),
            default=None,
        ),
    )


def ask_later(evaluation: Evaluation, server: Server, hidden: Hidden, timed: TimedSide) -> Later:
    """The timed prompts once more."""
    return Later(replay=_replay(evaluation, server, hidden, timed, "later replay"))


def later_breaches(later: Later, limits: ConductLimits) -> Iterator[Breach]:
    """Of a later server's memory."""
    if breach := later.replay.breach("a later server of the submission", limits):
        yield breach


def _replay(evaluation: Evaluation, server: Server, hidden: Hidden, timed: TimedSide, label: str) -> Replay:
    """On the workload with the fewest requests at once, whose time per token is the steadiest."""
    task = evaluation.task
    workloads = task.timed_workloads(evaluation.rules)
    name = min(workloads, key=lambda name: (workloads[name].max_concurrency, workloads[name].input_len))
    workload, limits = workloads[name], task.conduct
    asked = {output.prompt for output in timed.outputs[name]}
    needed = fresh_needed(limits)
    drawn = cut_prompts(hidden.pool, 3 * needed, workload.input_len, evaluation.seed(label, name))
    question = AskAgain(
        workload=workload,
        seen=[output.prompt for output in timed.outputs[name][:needed]],
        fresh=[prompt for prompt in drawn if prompt not in asked][:needed],
        limits=limits,
        timeout_s=task.engine.request_timeout_s,
    )
    replay: Replay = server.ask(question, "asking prompts a second time")
    return replay


def conduct_part(
    checked: Checked | None, later: Later | None, candidate: TimedSide, anchor: TimedSide
) -> Conduct | None:
    """What of it stands in the record; None for a candidate that an earlier release of ours has timed."""
    if checked is None:
        return None
    return Conduct(
        replay=checked.replay,
        later_replay=later.replay if later else None,
        consistency=checked.consistency,
        texts_disagree=checked.texts_disagree,
        at_start=candidate.at_start,
        at_end=candidate.at_end,
        anchor=anchor.at_end,
    )


@contextmanager
def logprobs_needed() -> Iterator[None]:
    """No log-probabilities at all break the contract (rules: contract.kl_rule)."""
    try:
        yield
    except EngineAnswerError as error:
        if not lacks_logprobs(error):
            raise
        raise ContractError(
            error.summary,
            where=error.where,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def keep_rules(breaches: Iterable[Breach]) -> None:
    """Raises EngineRulesError for the first of them."""
    for breach in breaches:
        raise breach.error


def timed_breaches(evaluation: Evaluation, timed: TimedSide, stored_gib: float) -> Iterator[Breach]:
    """Of the timed server: host memory, weights read late, other hosts."""
    limits, on_gpu = evaluation.task.conduct, evaluation.task.engine.device == "cuda"
    if on_gpu:
        yield from _offload(timed.start_log, "the timed server's start-up log")
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


def _offload(log: str, where: str) -> Iterator[Breach]:
    if found := offload_findings(log):
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
