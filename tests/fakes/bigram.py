"""A language model one can compute by hand: the next token depends on the previous token alone.

The anchor's logits are a table of normal numbers times `sharpness`; a candidate's are the anchor's plus
`noise` times a second table, which stands for quantization. So the KL divergence, the perplexity and the
log-probability of any text have exact values, and this module computes them over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["EOS", "VOCABULARY", "Bigram"]

VOCABULARY = 260
"""256 bytes, three special tokens and a spare one."""
EOS = 256
_TEXT = np.array([*b"abcdefghijklmnopqrstuvwxyz     .,"])
"""Bytes that most text consists of; the others are made unlikely, so that greedy text is readable."""


@dataclass(frozen=True, slots=True)
class Bigram:
    """One model; `noise` 0 is the anchor."""

    seed: int = 7
    sharpness: float = 2.0
    noise: float = 0.0
    noise_seed: int = 11
    vocab_size: int = VOCABULARY
    eos_logit: float = 0.0
    """Added to the logit of the end-of-sequence token everywhere."""
    logprobs: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    """[vocab_size, vocab_size]: row = previous token, column = next token."""

    def __post_init__(self) -> None:
        size = (self.vocab_size, self.vocab_size)
        logits = self.sharpness * np.random.default_rng(self.seed).standard_normal(size)
        logits -= 6.0
        text = _TEXT[np.flatnonzero(self.vocab_size > _TEXT)]
        logits[:, text] += 6.0
        if self.vocab_size > EOS:
            logits[:, EOS] += self.eos_logit
        logits += self.noise * np.random.default_rng(self.noise_seed).standard_normal(size)
        shifted = logits - logits.max(axis=1, keepdims=True)
        table = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        object.__setattr__(self, "logprobs", table)

    def greedy(self, previous: int, count: int, forbid: Sequence[int] = ()) -> list[int]:
        """The `count` most likely tokens after `previous`, one after the other, never one of `forbid`."""
        table = self.logprobs.copy()
        table[:, list(forbid)] = -np.inf
        best = table.argmax(axis=1)
        out: list[int] = []
        for _ in range(count):
            previous = int(best[previous])
            out.append(previous)
        return out

    def score(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Log-probability of each token after the first, [len(tokens) - 1]."""
        ids = np.asarray(tokens)
        return self.logprobs[ids[:-1], ids[1:]]

    def kl_to(self, candidate: Bigram) -> NDArray[np.float64]:
        """KL(self ‖ candidate) in nats after each previous token, over the whole vocabulary."""
        p = np.exp(self.logprobs)
        return (p * (self.logprobs - candidate.logprobs)).sum(axis=1)
