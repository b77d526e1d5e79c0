"""Perplexity on windows of hidden text: shown beside the score, not part of it.

A window of n tokens predicts n − 1. ppl = exp(mean nll over all predicted tokens); dnll = the candidate's
mean nll − the anchor's, nats per token, and its standard error over windows (paired: both saw the same
windows). The anchor's part is an `AnchorLoss`, stored and reused like the KL probe's reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.logprobs import Question, ask, probe
from lowbit_ray.rules import _Described
from lowbit_ray.stats import standard_error

__all__ = ["AnchorLoss", "PerplexityResult", "anchor_loss", "measure_perplexity", "scores_no_text"]

OWN_TOKENS_ALONE = "the engine gives log-probabilities of its own tokens alone"
Progress = Callable[[int, int], None]


class PerplexityResult(_Described):
    """Excess loss over BF16 on one text."""

    dnll: float
    """Candidate's nll − anchor's, nats per token."""
    dnll_se: float | None
    """Standard error over windows; None for one window."""
    ppl: float
    """exp of the candidate's nll."""
    ppl_bf16: float
    """Of the anchor's."""
    tokens: int
    """Predicted tokens."""
    windows: int


@dataclass(frozen=True, slots=True)
class AnchorLoss:
    """The anchor's nll per token on each window; hidden, as it holds the text."""

    windows: NDArray[np.int64] = field(repr=False)
    """Token ids, [windows, length]."""
    losses: NDArray[np.float64]
    """Mean nll of each window, nats per token, [windows]."""

    def save(self, path: Path) -> None:
        """Writes an npz file."""
        np.savez_compressed(path, windows=self.windows, losses=self.losses)

    @staticmethod
    def load(path: Path) -> AnchorLoss:
        """Reads what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            return AnchorLoss(file["windows"], file["losses"])


def scores_no_text(error: EngineAnswerError) -> bool:
    """Whether this says that the engine cannot score a text which it did not generate, and nothing worse."""
    return error.summary == OWN_TOKENS_ALONE


async def anchor_loss(
    anchor: Endpoint,
    windows: Sequence[Sequence[int]],
    *,
    concurrency: int,
    timeout_s: float,
    progress: Progress | None = None,
) -> AnchorLoss:
    """Scores the windows with the anchor."""
    if not windows or len({len(window) for window in windows}) != 1:
        raise ConfigError("perplexity needs windows of one length", where="perplexity.windows")
    array = np.asarray(windows, dtype=np.int64)
    losses = await _losses(anchor, array, concurrency=concurrency, timeout_s=timeout_s, progress=progress)
    return AnchorLoss(array, losses)


async def measure_perplexity(
    candidate: Endpoint,
    anchor: AnchorLoss,
    *,
    concurrency: int,
    timeout_s: float,
    progress: Progress | None = None,
) -> PerplexityResult:
    """Scores the same windows with the candidate.

    Raises EngineAnswerError where the server cannot score a text it did not generate.
    """
    losses = await _losses(
        candidate, anchor.windows, concurrency=concurrency, timeout_s=timeout_s, progress=progress
    )
    excess = losses - anchor.losses
    count, length = anchor.windows.shape
    return PerplexityResult(
        dnll=float(excess.mean()),
        dnll_se=standard_error([float(value) for value in excess]),
        ppl=_exp(losses),
        ppl_bf16=_exp(anchor.losses),
        tokens=count * (length - 1),
        windows=count,
    )


async def _losses(
    endpoint: Endpoint,
    windows: NDArray[np.int64],
    *,
    concurrency: int,
    timeout_s: float,
    progress: Progress | None,
) -> NDArray[np.float64]:
    """Mean nll of each window, [windows]: all have one length, so their mean is the mean over tokens."""
    questions = [Question(tuple(int(token) for token in window), start=1) for window in windows]
    method = await probe(endpoint, questions[0].tokens, 1, timeout_s=timeout_s)
    if method == "generation":
        raise EngineAnswerError(
            OWN_TOKENS_ALONE,
            where="perplexity",
            found=method,
            expected="prompt_logprobs or echo",
        )
    answers = await ask(
        endpoint, questions, 1, method=method, concurrency=concurrency, timeout_s=timeout_s, progress=progress
    )
    return np.asarray([-answer.actual.mean() for answer in answers])


def _exp(losses: NDArray[np.float64]) -> float:
    return math.exp(min(float(losses.mean()), 700.0))
