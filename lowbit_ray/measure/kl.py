"""The KL probe: how far a candidate's next-token distributions are from the anchor's.

The anchor continues hidden prompts greedily; on its continuations both engines give top-K log-probabilities.
What the anchor said is a `Reference`, made once for a task, release and device, kept as a private file and
asked of any number of candidates. The noise floor is the same probe with the anchor as the candidate, asked
in another order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.continuation import continue_greedily
from lowbit_ray.measure.divergence import tail_mass, token_divergence, unlisted_mass
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.logprobs import Method, Positions, Question, ask, probe
from lowbit_ray.rules import _Described
from lowbit_ray.stats import standard_error
from lowbit_ray.tasks import KLPlan

__all__ = ["KLResult", "Reference", "make_reference", "measure_kl"]

REORDER_LIMIT = 0.02
"""Nats per token by which a server may differ from itself when asked in another order: batch-size noise is
below 0.005 on BF16 kernels, a stale buffer far above."""


class KLResult(_Described):
    """KL(BF16 ‖ candidate) in nats, a lower bound (divergence.py)."""

    kl: float
    """Mean over sequences of the sequence's mean; enters the drift."""
    kl_median: float
    """Median over sequences."""
    kl_per_token: float
    """Mean over tokens."""
    kl_se: float
    """Standard error of `kl` over sequences."""
    sequences: int
    tokens: int
    top_k: int
    """Log-probabilities a position on both sides."""
    tail_mass: float
    """Mean probability of the anchor outside its top K: what the bound cannot see into."""
    unlisted: float
    """Mean probability of the anchor on top-K ids that the candidate's list leaves out."""
    method: str
    """How the candidate was asked."""
    anchor_method: str
    reorder_sequences: int
    """Sequences asked twice, in another order."""
    reorder_kl: float | None
    """The candidate against itself on those; None if none was."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The anchor's part of the probe; hidden, as it holds prompts."""

    texts: tuple[tuple[int, ...], ...] = field(repr=False)
    """Prompt and continuation."""
    starts: tuple[int, ...]
    """Where each continuation begins."""
    positions: tuple[Positions, ...] = field(repr=False)
    top_k: int
    method: Method

    def questions(self) -> list[Question]:
        """What to ask a candidate."""
        return [Question(text, start) for text, start in zip(self.texts, self.starts, strict=True)]

    def save(self, path: Path) -> None:
        """Writes a compressed npz file, float32 as on the wire."""
        np.savez_compressed(
            path,
            tokens=np.concatenate([np.asarray(text, np.int64) for text in self.texts]),
            lengths=np.asarray([len(text) for text in self.texts]),
            starts=np.asarray(self.starts),
            ids=np.concatenate([item.ids for item in self.positions]),
            logprobs=np.concatenate([item.logprobs for item in self.positions]).astype(np.float32),
            actual=np.concatenate([item.actual for item in self.positions]).astype(np.float32),
            top_k=np.asarray(self.top_k),
            method=np.asarray(self.method),
        )

    @staticmethod
    def load(path: Path) -> Reference:
        """Reads what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        texts = _split(arrays["tokens"], arrays["lengths"])
        starts = arrays["starts"]
        counts = arrays["lengths"] - starts
        parts = (_split(arrays[name], counts) for name in ("ids", "logprobs", "actual"))
        positions = tuple(
            Positions(ids, logprobs.astype(np.float64), actual.astype(np.float64), text[start:])
            for ids, logprobs, actual, text, start in zip(*parts, texts, starts, strict=True)
        )
        return Reference(
            texts=tuple(tuple(int(token) for token in text) for text in texts),
            starts=tuple(int(start) for start in starts),
            positions=positions,
            top_k=int(arrays["top_k"]),
            method=str(arrays["method"]),  # type: ignore[arg-type]
        )


def _split(array: NDArray[np.generic], counts: NDArray[np.int64]) -> list[NDArray[np.generic]]:
    return np.split(array, np.cumsum(counts)[:-1])


async def make_reference(
    anchor: Endpoint,
    prompts: Sequence[Sequence[int]],
    plan: KLPlan,
    *,
    timeout_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> Reference:
    """Lets the anchor continue the prompts and score its own continuations."""
    if len(prompts) < 2:
        raise ConfigError("the KL probe needs two sequences for its standard error", where="kl.sequences")
    texts = await continue_greedily(
        anchor, prompts, plan.max_tokens, concurrency=plan.max_concurrency, timeout_s=timeout_s
    )
    questions = [Question((*prompt, *text), len(prompt)) for prompt, text in zip(prompts, texts, strict=True)]
    method = await probe(anchor, questions[0].tokens, plan.top_k, timeout_s=timeout_s)
    positions = await ask(
        anchor,
        questions,
        plan.top_k,
        method=method,
        concurrency=plan.max_concurrency,
        timeout_s=timeout_s,
        progress=progress,
    )
    return Reference(
        texts=tuple(question.tokens for question in questions),
        starts=tuple(question.start for question in questions),
        positions=tuple(positions),
        top_k=plan.top_k,
        method=method,
    )


async def measure_kl(
    candidate: Endpoint,
    reference: Reference,
    *,
    concurrency: int,
    timeout_s: float,
    seed: int = 0,
    reorder: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> KLResult:
    """The probe of one candidate, or the noise floor where `candidate` is the anchor.

    Texts are sent in an order drawn from `seed`, and `reorder` of them again in another. Raises
    EngineAnswerError where the two differ by more than batch noise, and with the summary NO_LOGPROBS
    (logprobs.py) where there are none.
    """
    questions = reference.questions()
    method = await probe(candidate, questions[0].tokens, reference.top_k, timeout_s=timeout_s)
    order = random.Random(seed).sample(range(len(questions)), len(questions))
    answers = await ask(
        candidate,
        questions,
        reference.top_k,
        method=method,
        concurrency=concurrency,
        timeout_s=timeout_s,
        order=order,
        progress=progress,
    )
    again = order[::-1][:reorder]
    repeats = await ask(
        candidate,
        [questions[index] for index in again],
        reference.top_k,
        method=method,
        concurrency=concurrency,
        timeout_s=timeout_s,
    )
    reorder_kl = _reorder_kl([answers[index] for index in again], repeats)
    return _result(reference, answers, method, len(again), reorder_kl)


def _reorder_kl(first: Sequence[Positions], second: Sequence[Positions]) -> float | None:
    if not first:
        return None
    values = [float(token_divergence(a, b).mean()) for a, b in zip(first, second, strict=True)]
    if fmean(values) > REORDER_LIMIT:
        raise EngineAnswerError(
            "log-probabilities depend on the order of requests",
            where="KL probe",
            found=f"{fmean(values):.4f} nats per token against itself",
            expected=f"≤ {REORDER_LIMIT}",
            remedy="Serve without prefix caching.",
        )
    return fmean(values)


def _result(
    reference: Reference, answers: Sequence[Positions], method: Method, again: int, reorder_kl: float | None
) -> KLResult:
    pairs = list(zip(reference.positions, answers, strict=True))
    tokens = [token_divergence(anchor, candidate) for anchor, candidate in pairs]
    means = [float(values.mean()) for values in tokens]
    error = standard_error(means)
    if error is None:
        raise ConfigError("the KL probe needs two sequences for its standard error", where="kl.sequences")
    return KLResult(
        kl=fmean(means),
        kl_median=median(means),
        kl_per_token=float(np.concatenate(tokens).mean()),
        kl_se=error,
        sequences=len(means),
        tokens=sum(len(values) for values in tokens),
        top_k=reference.top_k,
        tail_mass=float(np.concatenate([tail_mass(anchor) for anchor, _ in pairs]).mean()),
        unlisted=float(np.concatenate([unlisted_mass(*pair) for pair in pairs]).mean()),
        method=method,
        anchor_method=reference.method,
        reorder_sequences=again,
        reorder_kl=reorder_kl,
    )
