"""Audit of the timed outputs: were they the model's own words? (The rules' `engine.timed_output_audit`.)

Candidate and anchor answered the same prompts while they were timed. The BF16 anchor now scores a draw of
both, teacher-forced. An engine that skipped work to be fast says what the anchor would not.

- An output's *length* is the number of its tokens before its first end-of-sequence token, all of them if
  there is none: the load ignores the end, so what comes after it is filler.
- *Scored* are the tokens up to and with the first end-of-sequence token: to stop is a decision too.
- An output is *empty* when its text before the end has nothing but white space.
- Samples are the picked prompts less those whose candidate output is empty; gaps are over samples, length
  ratios over all picked. Nothing is shorter than an output of no length: the ratio is then 1.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.logprobs import Positions, Question, ask, probe
from lowbit_ray.measure.prompts import Tokenizer
from lowbit_ray.measure.workload import Output
from lowbit_ray.rules import _Described

__all__ = ["Audit", "AuditLimits", "audit_outputs", "passes"]


class Audit(_Described):
    """One workload's audit. Means are over samples of the sample's mean, in nats per token."""

    bf16_mean: float | None
    """Mean log-probability of the anchor's own tokens; None without samples."""
    bf16_top1: float | None
    """Share of the anchor's own tokens that are its argmax when they are scored."""
    empty: int
    """Candidate's outputs without text."""
    empty_alone: int
    """Candidate's outputs without text where the anchor's has some."""
    empty_reference: int
    """Anchor's outputs without text."""
    engine_mean: float | None
    """Mean log-probability, by the anchor, of the candidate's tokens."""
    engine_top1: float | None
    """Share of the candidate's tokens that are the anchor's argmax."""
    gap: float | None
    """bf16_mean − engine_mean."""
    gap_max: float | None
    """Largest of a sample, nats per token."""
    gap_median: float | None
    """Median over samples of the sample's gap: what the limit holds."""
    length_ratio: float
    """Median over picked of candidate's / anchor's generated length."""
    length_ratio_min: float
    """Least of a sample."""
    picked: int
    run: str
    """Name of the private file with the outputs."""
    samples: int
    status: Literal["audited"] = "audited"
    top1_gap: float | None
    """bf16_top1 − engine_top1."""
    repeated_eos: int
    """Candidate's outputs that hold more than one end-of-sequence token."""
    repeated_eos_alone: int
    """Those where the anchor's output holds at most one: a padded tail rather than the model's habit."""
    retokenized: int
    """Candidate's outputs whose ids the server did not return, so that they come from the text."""
    gaps: tuple[float, ...] = ()
    """Each sample's gap, smallest first; empty in records from before they were kept."""


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """What an audit has to keep (rules: engine.timed_output_audit)."""

    median_gap: float
    """Nats."""
    min_length_ratio: float
    max_empty_share: float


@dataclass(frozen=True, slots=True)
class _Side:
    """One picked output."""

    scored: tuple[int, ...] = field(repr=False)
    length: int
    empty: bool
    ends: int
    """End-of-sequence tokens in it."""


async def audit_outputs(
    anchor: Endpoint,
    candidate_outputs: Sequence[Output],
    anchor_outputs: Sequence[Output],
    *,
    tokenizer: Tokenizer,
    eos_ids: Collection[int],
    samples: int,
    seed: bytes,
    run: str,
    concurrency: int,
    timeout_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Audits `samples` outputs drawn by `seed`, scored by the anchor's server.

    `tokenizer` is the anchor's. Raises EngineAnswerError where the anchor cannot score.
    """
    if [output.prompt for output in candidate_outputs] != [output.prompt for output in anchor_outputs]:
        raise ValueError("candidate and anchor did not answer the same prompts")
    count = min(samples, len(candidate_outputs))
    picked = sorted(random.Random(seed).sample(range(len(candidate_outputs)), count))
    pairs = [
        (_side(candidate_outputs[i], tokenizer, eos_ids), _side(anchor_outputs[i], tokenizer, eos_ids))
        for i in picked
    ]
    kept = [place for place, (engine, _) in enumerate(pairs) if not engine.empty]
    questions = [
        Question(
            (*anchor_outputs[picked[place]].prompt, *side.scored), len(anchor_outputs[picked[place]].prompt)
        )
        for place in kept
        for side in pairs[place]
    ]
    scores = await _score(anchor, questions, concurrency, timeout_s, progress)
    retokenized = sum(candidate_outputs[i].token_ids is None for i in picked)
    return _audit(pairs, scores[::2], scores[1::2], run, retokenized)


def passes(audit: Audit, limits: AuditLimits) -> str | None:
    """Why the audit fails, None if it does not; a failed audit breaks the engine rules."""
    empty_share = audit.empty_alone / audit.picked
    if empty_share > limits.max_empty_share:
        return (
            f"{audit.empty_alone} of {audit.picked} timed outputs are empty where BF16's are not, "
            f"more than {limits.max_empty_share:.0%}"
        )
    if audit.repeated_eos_alone / audit.picked > limits.max_empty_share:
        return (
            f"{audit.repeated_eos_alone} of {audit.picked} timed outputs repeat the end-of-sequence token "
            f"where BF16's do not, more than {limits.max_empty_share:.0%}"
        )
    if audit.gap_median is not None and audit.gap_median > limits.median_gap:
        return (
            f"BF16 finds the timed outputs {audit.gap_median:.4f} nats per token less likely than its own "
            f"(median), more than {limits.median_gap}"
        )
    if audit.length_ratio < limits.min_length_ratio:
        return (
            f"the timed outputs are {audit.length_ratio:.3f} as long as BF16's (median), "
            f"less than {limits.min_length_ratio}"
        )
    return None


def _side(output: Output, tokenizer: Tokenizer, eos_ids: Collection[int]) -> _Side:
    ids = output.token_ids if output.token_ids is not None else tuple(tokenizer.encode(output.text))
    ends = [place for place, token in enumerate(ids) if token in eos_ids]
    length = ends[0] if ends else len(ids)
    return _Side(
        scored=ids[: length + 1],
        length=length,
        empty=not tokenizer.decode(ids[:length]).strip(),
        ends=len(ends),
    )


async def _score(
    anchor: Endpoint,
    questions: Sequence[Question],
    concurrency: int,
    timeout_s: float,
    progress: Callable[[int, int], None] | None,
) -> list[tuple[float, float]]:
    """(mean log-probability, share that is the argmax) of each text's own tokens."""
    if not questions:
        return []
    method = await probe(anchor, questions[0].tokens, 1, timeout_s=timeout_s)
    if method == "generation":
        raise EngineAnswerError(
            "the anchor cannot score a text it did not generate", where="audit", found=method
        )
    answers = await ask(
        anchor, questions, 1, method=method, concurrency=concurrency, timeout_s=timeout_s, progress=progress
    )
    return [_summary(answer) for answer in answers]


def _summary(answer: Positions) -> tuple[float, float]:
    likeliest = answer.actual >= answer.logprobs[:, 0]
    return float(answer.actual.mean()), float(likeliest.mean())


def _audit(
    pairs: Sequence[tuple[_Side, _Side]],
    engine: Sequence[tuple[float, float]],
    bf16: Sequence[tuple[float, float]],
    run: str,
    retokenized: int,
) -> Audit:
    gaps = [theirs[0] - mine[0] for mine, theirs in zip(engine, bf16, strict=True)]
    ratios = [mine.length / theirs.length if theirs.length else 1.0 for mine, theirs in pairs]
    bf16_mean, engine_mean = _mean(bf16, 0), _mean(engine, 0)
    bf16_top1, engine_top1 = _mean(bf16, 1), _mean(engine, 1)
    return Audit(
        bf16_mean=bf16_mean,
        bf16_top1=bf16_top1,
        empty=sum(mine.empty for mine, _ in pairs),
        empty_alone=sum(mine.empty and not theirs.empty for mine, theirs in pairs),
        empty_reference=sum(theirs.empty for _, theirs in pairs),
        engine_mean=engine_mean,
        engine_top1=engine_top1,
        gap=fmean(gaps) if gaps else None,
        gap_max=max(gaps) if gaps else None,
        gap_median=median(gaps) if gaps else None,
        length_ratio=median(ratios),
        length_ratio_min=min(ratios),
        picked=len(pairs),
        run=run,
        samples=len(gaps),
        top1_gap=None if bf16_top1 is None or engine_top1 is None else bf16_top1 - engine_top1,
        repeated_eos=sum(mine.ends > 1 for mine, _ in pairs),
        repeated_eos_alone=sum(mine.ends > 1 >= theirs.ends for mine, theirs in pairs),
        retokenized=retokenized,
        gaps=tuple(sorted(round(gap, 6) for gap in gaps)),
    )


def _mean(scores: Sequence[tuple[float, float]], part: int) -> float | None:
    return fmean(score[part] for score in scores) if scores else None
