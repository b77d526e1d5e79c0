"""What an engine may not do: one rule each, and its limit, in one place.

The rules file names offload, the audit and the hard cap, with their limits; what it leaves open stands here. A
task may set its own limits (`conduct:` in its file). Where a limit comes from a measurement, it says which: an
honest server is not to be caught by the noise of its own kernels.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lowbit_ray.errors import EngineRulesError, LowbitError, SubmissionError
from lowbit_ray.rules import _Described, _Frozen

__all__ = ["RULES", "Breach", "ConductLimits", "Fault"]

RULES = {
    "offload": "weights or KV blocks are held in host memory",
    "host memory": "the engine keeps in host memory what the device's peak leaves out",
    "memory accounts": "the engine holds memory that is not in its accounts",
    "hard cap": "the claimed peak is not what the engine needs",
    "audit": "BF16 does not believe what was said while timed",
    "answer cache": "answers are remembered",
    "withheld tokens": "first tokens are held back",
    "two faces": "the engine says something else when it is timed than when it is probed",
    "log-probabilities": "the log-probabilities are not those of what the engine says",
    "token counts": "the text is not what the token ids say",
    "second model": "weights were read after the engine had started",
    "network": "the engine talks to another host",
}
"""Each rule's name, and what is said of an engine that breaks it."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class ConductLimits(_Frozen):
    """Limits of the rules that the rules file leaves open."""

    replay_ratio: Share = 0.6
    """Least time per token of a prompt asked before over that of a fresh one, asked alone in turn with it. The same
    server repeats itself within 2 % (interactive on an H200: 189.2 and 189.3 tok/s; asked so, ratios of 0.98 to 1.09
    on the same server and 0.87 to 1.00 on a later one); a remembered answer costs next to nothing. Only what stays
    below in every round counts."""
    replay_rounds: Annotated[int, Field(ge=1)] = 3
    withheld_ratio: Positive = 1.25
    """Most by which a gain in time per token may exceed the gain in whole answers, where TPOT is scored: an engine that
    holds its first tokens back gains the one and not the other. A slower prefill makes some of it; where prefill is
    much of an answer, as on a CPU, a task allows more."""
    self_gap_nats: Positive = 0.25
    """Most that an engine's probed distribution may prefer other tokens to those it said while timed: nats a token,
    median over samples. BF16 finds 98.6 to 99.5 % of its own timed tokens to be its argmax when it is asked again
    (published record), and those that are not are near ties (BF16 logits of 16 to 32 have steps of 0.125): below
    0.015, and so it was on an H200 (FP8 0.008 to 0.016, BF16 0.000). Another model says what is several nats less
    likely."""
    chosen_share: Share = 0.1
    """Largest share of greedily generated tokens that are not the likeliest of their own answer's list. Exactly 0 in
    vLLM, which takes both from the same logits."""
    shift_nats: Positive = 0.1
    """Largest mean difference of the same tokens' log-probabilities, asked twice alone with another top_k. 0 in vLLM,
    a different batch adds about 0.001 (KL of BF16 against itself, H200: 0.0001)."""
    forced_kl: Positive = 0.1
    """Largest mean KL between the distributions given while generating and those given of the finished text, nats a
    token. Prefill and decoding use different kernels, and an 8-bit KV cache may be read by one of them only: on an
    H200 the chosen tokens' log-probabilities differed by 0.006 (BF16, 8B shape) and by 0.139 (FP8 cache, a model of
    135M), which as noise is a KL of about half its square, 0.01. Whoever lends another model's distributions hides
    its own KL, and gains nothing by hiding less than this: 0.1 are 0.9 points of drift."""
    text_share: Share = 0.25
    """Largest share of timed outputs whose text is not that of their ids; as the audit's max_empty_share."""
    host_growth_gib: Positive = 4.0
    """Most host memory (private and shared, without mapped files) that an engine on GPUs may add while it is timed,
    or hold more under a cap than without; as much as the rules leave for the context (engine.context_gib)."""
    host_beyond_gib: Positive = 8.0
    """Most host memory that an engine on GPUs may hold beyond the BF16 server of the same pod: a few processes more,
    each with its libraries, take 1 to 2 GiB each."""
    unaccounted_gib: Positive = 4.0
    """Most that the GPUs may count beyond an engine's own accounts, more than they do of the BF16 server; 0.46 to 0.55
    GiB in all on an H200, 1.8 in the published record; as engine.context_gib."""
    unaccounted_host_gib: Positive = 2.0
    """The same on a CPU, of resident memory: libraries and repacked weights differ between kernels."""
    kv_share: Share = 0.6
    """Least KV tokens in use that an engine's gauge may show, of BF16's on the same workload, for each request that
    ran at once. Both hold the same prompts in pools of the same kind: measured 0.9990 to 1.0002 on an H200 (FP8 and
    W4A16, serve and long context) and 1.000 on a CPU."""
    late_read_share: Share = 0.5
    """Largest part of the checkpoint's bytes that an engine may read by system calls after its first answer."""
    late_read_gib: Positive = 1.0
    """What it may read in any case: kernels' images, tokenizers, requests."""


class Breach(_Frozen):
    """One rule seen broken."""

    rule: str
    """A key of RULES."""
    where: str
    """Workload, server or field."""
    seen: str
    limit: str

    @property
    def error(self) -> EngineRulesError:
        """The verdict: the submission scores 0."""
        where = f"engine rule “{self.rule}”" + (f", {self.where}" if self.where else "")
        return EngineRulesError(RULES[self.rule], where=where, found=self.seen, expected=self.limit)


class Fault(_Described):
    """Why there is no score, in the parts of its error: what a page shows beside the sentence."""

    kind: str
    """`engine rules`, `contract`, `checkpoint`, `address`, `submission` or `engine`."""
    rule: str | None
    """Which engine rule was broken, or which rule of the contract: `configuration`, `source_weights`, `companions`,
    `foreign_tensors`, `precision`, `files`, `execution`."""
    summary: str
    where: str
    seen: str | None
    limit: str | None
    """What was expected."""
    remedy: str

    @staticmethod
    def of(error: LowbitError) -> Fault:
        """The parts of an error that ends a submission."""
        named = error.where.partition("“")[2].partition("”")[0] if isinstance(error, EngineRulesError) else ""
        return Fault(
            kind=_kind(error),
            rule=named or None,
            summary=error.summary,
            where=error.where,
            seen=None if error.found is None else str(error.found),
            limit=None if error.expected is None else str(error.expected),
            remedy=error.remedy,
        )


def _kind(error: LowbitError) -> str:
    names = {
        "EngineRulesError": "engine rules",
        "ContractError": "contract",
        "CheckpointError": "checkpoint",
        "AbsentError": "address",
    }
    return names.get(type(error).__name__, "submission" if isinstance(error, SubmissionError) else "engine")
