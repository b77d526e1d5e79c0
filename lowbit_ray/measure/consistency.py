"""Does the engine say the same however it is asked? An honest one does, up to the noise of its kernels.

- *Two faces*: prompts that were timed are asked again in the form of a probe: not streamed, with log-probabilities,
  without `ignore_eos`. By what the engine then says of itself, the tokens that it said while timed are the likeliest
  or nearly so. Greedy decoding in batches is not deterministic (another batch, another kernel, a near tie falls the
  other way), so tokens are not compared but their log-probabilities: a near tie costs next to nothing, the words of
  another model several nats. Every position is asked from the text so far, so that one difference does not count
  twice. Where the engine would have ended (its likeliest token is an end that the timed form forbids), nothing is
  compared.
- *Log-probabilities*: in one answer, the token that greedy decoding chose is the likeliest of its own list. The same
  prompt asked again with another top_k gets the same values, and so does the finished text where the engine can
  score one.
- *Token counts*: the text of a timed output is that of its ids.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np

from lowbit_ray.conduct import Breach, ConductLimits
from lowbit_ray.measure.divergence import token_divergence
from lowbit_ray.measure.endpoint import Endpoint, connect
from lowbit_ray.measure.load import Prompt
from lowbit_ray.measure.logprobs import (
    Method,
    Positions,
    Question,
    ask,
    generate_with_logprobs,
    knows,
    probe,
)
from lowbit_ray.measure.prompts import Tokenizer
from lowbit_ray.measure.rows import LegacyRow, pack
from lowbit_ray.measure.runs import Output
from lowbit_ray.rules import _Frozen

__all__ = ["Consistency", "check_consistency", "texts_disagree"]

TOKENS = 16
"""Of each output and of each probe: enough to tell models apart, one request where they agree."""
SLACK_NATS = 0.01
"""By which a chosen token may lie below the likeliest of its own list: rounding."""
SHORT = 2048
"""Longest text that is scored whole: log-probabilities of a long prompt take GiB of an engine's memory."""
NOISE = re.compile(r"<\|[^|>]*\|>|</?s>|[^!-~]+")
"""What a text and its ids may differ by: special tokens, white space, and characters of several bytes, which a token
may cut in two."""
ALIKE = 0.9
"""Least share of the longer text that the beginning and the end in common make up."""
FAR = 99.0
"""Nats that stand for a value which is not listed, or not a number."""


class Consistency(_Frozen):
    """How far an engine's answers agree with each other."""

    self_gap: dict[str, float | None]
    """By workload: median over samples of the mean by which a probe prefers another token to the timed one, nats a
    token; None where nothing could be compared."""
    timed_tokens: int
    """Tokens compared in all."""
    chosen_share: float | None
    """Share of greedy tokens that are not the likeliest of their own answer; None without generated
    log-probabilities, as below."""
    asked_again: float | None
    """Mean difference of log-probabilities between two askings, nats."""
    forced: float | None
    """Mean difference of the chosen tokens' values between generating and scoring the same text, nats; None where
    texts cannot be scored. Shown; it grows with the noise of kernels, `forced_kl` with its square."""
    forced_kl: float | None = None
    """Mean KL of the same two distributions, nats a token, a lower bound: what is judged."""

    def breaches(self, limits: ConductLimits) -> list[Breach]:
        """The rules that these figures break."""
        found = []
        figures = (
            (
                self.chosen_share,
                limits.chosen_share,
                "greedy tokens that are not the likeliest of their own list",
            ),
            (self.asked_again, limits.shift_nats, "nats between the values of the same tokens, asked twice"),
            (self.forced_kl, limits.forced_kl, "nats of KL between generating and scoring the same text"),
        )
        for value, limit, words in figures:
            if value is not None and value > limit:
                found.append(
                    Breach(
                        rule="log-probabilities",
                        where="probes of consistency",
                        seen=f"{value:.3f} {words}",
                        limit=f"≤ {limit}",
                    )
                )
        for name, gap in self.self_gap.items():
            if gap is not None and gap > limits.self_gap_nats:
                found.append(
                    Breach(
                        rule="two faces",
                        where=f"workload {name}",
                        seen=f"probed, it finds its own timed tokens {gap:.3f} nats less likely than others (median)",
                        limit=f"≤ {limits.self_gap_nats} nats",
                    )
                )
        return found


@dataclass(frozen=True, slots=True)
class Sample:
    """What was said to one timed prompt, up to its first end."""

    prompt: tuple[int, ...] = field(repr=False)
    said: tuple[int, ...] = field(repr=False)


async def check_consistency(
    endpoint: Endpoint,
    timed: dict[str, Sequence[Output]],
    probes: Sequence[Prompt],
    *,
    tokenizer: Tokenizer,
    eos_ids: Collection[int],
    top_k: int,
    timeout_s: float,
) -> Consistency:
    """Asks a few `timed` outputs of each workload and a few `probes` again.

    Raises EngineAnswerError where the engine answers wrongly; with the summary NO_LOGPROBS where it has none.
    """
    strongest = await probe(endpoint, probes[0], top_k, timeout_s=timeout_s)
    generates = await knows(endpoint, "generation", probes[0], top_k, timeout_s=timeout_s)
    gaps: dict[str, float | None] = {}
    compared = 0
    for name, outputs in timed.items():
        method: Method = "generation" if generates else strongest
        samples = [
            sample
            for sample in (_sample(output, tokenizer, eos_ids) for output in outputs)
            if sample.said and (generates or len(sample.prompt) <= SHORT)
        ]
        questions = [Question((*sample.prompt, *sample.said), len(sample.prompt)) for sample in samples]
        answers = await ask(endpoint, questions, top_k, method=method, concurrency=4, timeout_s=timeout_s)
        means = [gap for gap in (_gap(answer, eos_ids) for answer in answers) if gap is not None]
        gaps[name] = median(means) if means else None
        compared += sum(len(answer.actual) for answer in answers)
    probed = _Probed()
    if generates:
        for prompt in probes:
            await _ask_both_ways(probed, endpoint, prompt, strongest, top_k, timeout_s)
    return Consistency(
        self_gap=gaps,
        timed_tokens=compared,
        chosen_share=_mean(probed.beneath),
        asked_again=_mean(probed.again),
        forced=_mean(probed.forced),
        forced_kl=_mean(probed.forced_kl),
    )


def texts_disagree(outputs: Sequence[Output], tokenizer: Tokenizer) -> float | None:
    """Share of the outputs whose text is not that of their ids; None where no ids were returned."""
    pairs = [(output.text, tokenizer.decode(output.token_ids)) for output in outputs if output.token_ids]
    return fmean(not _alike(said, meant) for said, meant in pairs) if pairs else None


def _alike(said: str, meant: str) -> bool:
    """Equal but for what may differ; a beginning and an end in common are enough."""
    first, second = NOISE.sub("", said), NOISE.sub("", meant)
    longest = max(len(first), len(second))
    if first == second or longest == 0:
        return True
    shortest = min(len(first), len(second))
    begin = next((i for i in range(shortest) if first[i] != second[i]), shortest)
    end = next((i for i in range(shortest - begin) if first[-1 - i] != second[-1 - i]), shortest - begin)
    return (begin + end) / longest >= ALIKE


def _sample(output: Output, tokenizer: Tokenizer, eos_ids: Collection[int]) -> Sample:
    ids = output.token_ids if output.token_ids is not None else tuple(tokenizer.encode(output.text))
    end = next((place for place, token in enumerate(ids) if token in eos_ids), len(ids))
    return Sample(output.prompt, tuple(ids[: min(end, TOKENS)]))


def _gap(answer: Positions, eos_ids: Collection[int]) -> float | None:
    """Mean over positions of the likeliest token's log-probability less the timed one's; what is not listed has at
    most the last listed one's."""
    top = answer.logprobs[:, 0]
    listed = np.where(np.isfinite(answer.logprobs), answer.logprobs, np.inf).min(axis=1)
    own = np.where(np.isfinite(answer.actual), answer.actual, listed)
    counted = ~np.isin(answer.ids[:, 0], list(eos_ids))
    return float((top - own)[counted].mean()) if counted.any() else None


@dataclass(slots=True)
class _Probed:
    """One figure a token, of all probes."""

    beneath: list[bool] = field(default_factory=list)
    """Whether the chosen token is not the likeliest of its list."""
    again: list[float] = field(default_factory=list)
    """Difference when asked again."""
    forced: list[float] = field(default_factory=list)
    """Difference when the finished text is scored."""
    forced_kl: list[float] = field(default_factory=list)


async def _ask_both_ways(
    probed: _Probed, endpoint: Endpoint, prompt: Prompt, strongest: Method, top_k: int, timeout_s: float
) -> None:
    """One probe: generated twice, with another top_k, and scored where the engine can score a text."""
    async with connect(endpoint, timeout_s=timeout_s) as session:
        first, second = [
            await generate_with_logprobs(session, endpoint, prompt, TOKENS, count)
            for count in (top_k, max(1, top_k // 2))
        ]
    for row, other in zip(first, second, strict=False):
        probed.beneath.append(_own(row) < max(_value(value) for _, value in row.top) - SLACK_NATS)
        if row.token != other.token:
            break
        probed.again.append(abs(_own(row) - _own(other)))
    if strongest == "generation":
        return
    tokens = tuple(row.token for row in first)
    question = Question((*prompt, *tokens), len(prompt))
    (scored,) = await ask(endpoint, [question], top_k, method=strongest, concurrency=1, timeout_s=timeout_s)
    said = Positions(
        *pack([row.top for row in first], tokens, top_k, actual_required=False), np.asarray(tokens, np.int64)
    )
    probed.forced += [
        abs(_own(row) - _value(value)) for row, value in zip(first, scored.actual.tolist(), strict=True)
    ]
    probed.forced_kl += token_divergence(said, scored).tolist()


def _mean(values: Sequence[float | bool]) -> float | None:
    return fmean(values) if values else None


def _own(row: LegacyRow) -> float:
    """The chosen token's own value; FAR where it is not listed."""
    return _value(dict(row.top).get(row.token, -FAR))


def _value(logprob: float) -> float:
    return logprob if logprob > -FAR else -FAR
