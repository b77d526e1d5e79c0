"""The candidate asked again: prompts a second time, timed prompts as probes; what of it stands in the record.

On the server that was timed, and on the last server of the submission the prompts of the first one once more. Both
take seconds of the pod, which the record's time line shows as steps of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowbit_ray.errors import ContractError, EngineAnswerError
from lowbit_ray.measure.consistency import Consistency, check_consistency, texts_disagree
from lowbit_ray.measure.logprobs import lacks_logprobs
from lowbit_ray.measure.prompts import cut_prompts
from lowbit_ray.measure.replay import Replay, fresh_needed, replay
from lowbit_ray.records import Conduct
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.anchor import end_tokens
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.questions import inquire
from lowbit_ray.stages.serving import Server

__all__ = ["Checked", "Later", "ask_later", "check_timed", "conduct_part", "logprobs_needed"]

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
    question = inquire(
        check_consistency,
        {name: outputs[:SAMPLES] for name, outputs in timed.outputs.items()},
        hidden.probes[:SAMPLES],
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


def _replay(evaluation: Evaluation, server: Server, hidden: Hidden, timed: TimedSide, label: str) -> Replay:
    """On the workload with the fewest requests at once, whose time per token is the steadiest."""
    task = evaluation.task
    workloads = task.timed_workloads(evaluation.rules)
    name = min(workloads, key=lambda name: (workloads[name].max_concurrency, workloads[name].input_len))
    workload, limits = workloads[name], task.conduct
    asked = {output.prompt for output in timed.outputs[name]}
    needed = fresh_needed(limits)
    drawn = cut_prompts(hidden.pool, 3 * needed, workload.input_len, evaluation.seed(label, name))
    question = inquire(
        replay,
        workload,
        [output.prompt for output in timed.outputs[name][:needed]],
        [prompt for prompt in drawn if prompt not in asked][:needed],
        limits,
        timeout_s=task.engine.request_timeout_s,
    )
    return server.ask(question, "asking prompts a second time")


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
