"""KL divergence per token from two top-K lists: a lower bound of the divergence over the whole vocabulary.

P is the anchor's distribution, Q the candidate's. The anchor's top-K ids and one tail bucket are a coarsening
of the vocabulary, and coarsening never raises a KL divergence (data-processing inequality). Of an anchor id
that the candidate does not list, Q is unknown; two facts hold of it: it is at most `cap`, the least
probability the candidate lists among its top K, and all that is unlisted shares what the list leaves. We
take, of all Q that agree with the list, the one with the smallest divergence. That minimum is

- never above the true divergence, as the true Q is among those Q;
- never below what merging the unlisted ids into the tail gives (merging is the case without the cap);
- no gift: a list that leaves the anchor's ids out has to put their mass on ids that are seen.

The minimum of Σ p·log(p/q) over q ≤ cap, Σ q = mass is q = min(cap, c·p) with one c for all: water filling.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lowbit_ray.measure.logprobs import Positions

__all__ = ["tail_mass", "token_divergence", "unlisted_mass"]

Array = NDArray[np.float64]
LEAST = 1e-9
"""Probability that is assumed where rounding leaves nothing: keeps a bound finite, and only lowers it."""


def tail_mass(positions: Positions) -> Array:
    """Probability outside the top K at each position, [T]."""
    return np.asarray(np.clip(1 - np.exp(positions.logprobs).sum(axis=1), 0, 1))


def unlisted_mass(anchor: Positions, candidate: Positions) -> Array:
    """The anchor's probability on top-K ids of which the candidate says nothing, [T]."""
    missing = (anchor.ids >= 0) & ~np.isfinite(_on_anchor_ids(anchor, candidate))
    return np.asarray(np.where(missing, np.exp(anchor.logprobs), 0).sum(axis=1))


def token_divergence(anchor: Positions, candidate: Positions) -> Array:
    """The bound at each position, nats, [T]; both sides scored the same tokens."""
    if not np.array_equal(anchor.actual_ids, candidate.actual_ids):
        raise ValueError("the two sides did not score the same tokens")
    p = np.exp(anchor.logprobs)
    log_q = _on_anchor_ids(anchor, candidate)
    known = np.isfinite(log_q)
    missing = (anchor.ids >= 0) & ~known
    q_known = np.where(known, np.exp(log_q), 0)
    gain = np.where(known, anchor.logprobs - np.where(known, log_q, 0), 0)
    out = (p * np.where(known, gain, 0)).sum(axis=1)
    left = np.clip(1 - q_known.sum(axis=1), LEAST, None)
    tail = tail_mass(anchor)
    whole = ~missing.any(axis=1)
    out[whole] += _term(tail[whole], left[whole])
    if not whole.all():
        rest = ~whole
        listed = np.exp(candidate.logprobs[rest])
        cap = np.where(listed > 0, listed, np.inf).min(axis=1)
        matched = (q_known * _listed(anchor, candidate))[rest].sum(axis=1)
        floor = np.clip(listed.sum(axis=1) - matched, 0, None)
        p_missing = -np.sort(-np.where(missing, p, 0)[rest], axis=1)
        out[rest] += _least_divergence(p_missing, tail[rest], left[rest], cap, floor)
    return np.asarray(np.clip(out, 0, None))


def _keys(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """One integer for each (position, id); negative where there is no id."""
    rows = np.arange(len(ids), dtype=np.int64)[:, None] << 32
    return np.where(ids >= 0, rows | ids, -1)


def _listed(anchor: Positions, candidate: Positions) -> NDArray[np.bool_]:
    """Which of the anchor's ids the candidate lists, [T, K]."""
    return np.isin(_keys(anchor.ids), _keys(candidate.ids)) & (anchor.ids >= 0)


def _on_anchor_ids(anchor: Positions, candidate: Positions) -> Array:
    """The candidate's log-probabilities of the anchor's ids, −inf where unknown, [T, K].

    The text's own token is known even where it is not among the candidate's top K.
    """
    keys = _keys(candidate.ids).ravel()
    order = np.argsort(keys, kind="stable")
    wanted = _keys(anchor.ids)
    place = np.clip(np.searchsorted(keys, wanted, sorter=order), 0, len(keys) - 1)
    found = (keys[order][place] == wanted) & (wanted >= 0)
    log_q = np.where(found, candidate.logprobs.ravel()[order][place], -np.inf)
    own = (anchor.ids == candidate.actual_ids[:, None]) & ~found & np.isfinite(candidate.actual)[:, None]
    return np.where(own, candidate.actual[:, None], log_q)


def _term(p: Array, q: Array) -> Array:
    """p·log(p/q), 0 where p is 0."""
    safe = np.where(p > 0, p, 1)
    return np.where(p > 0, p * (np.log(safe) - np.log(np.maximum(q, LEAST))), 0)


def _least_divergence(p: Array, tail: Array, mass: Array, cap: Array, floor: Array) -> Array:
    """Smallest Σ p·log(p/q) over unlisted ids (p [R, K] falling, zeros last) and the tail [R].

    Each q ≤ cap, the tail's q ≥ floor (the listed ids that are not the anchor's lie in it), all sum to mass.
    """
    scale, q = _fill(p, tail, mass, cap)
    q_tail = np.where(tail > 0, np.where(np.isfinite(scale), scale, 0) * tail, mass - q.sum(axis=1))
    bound = q_tail < floor
    if bound.any():
        left = np.clip(mass - floor, LEAST, None)
        q[bound] = _fill(p[bound], np.zeros(bound.sum()), left[bound], cap[bound])[1]
        q_tail = np.where(bound, floor, q_tail)
    return np.asarray(_term(p, q).sum(axis=1) + _term(tail, q_tail))


def _fill(p: Array, free: Array, mass: Array, cap: Array) -> tuple[Array, Array]:
    """c [R] and q = min(cap, c·p) [R, K] with Σ q + c·free = mass; c is infinite where all are capped."""
    capped = np.arange(p.shape[1] + 1)
    zero = np.zeros((len(p), 1))
    used = np.hstack([zero, np.cumsum(p, axis=1)])
    uncapped = np.clip(used[:, -1:] - used, 0, None) + free[:, None]
    spare = mass[:, None] - capped * cap[:, None]
    rows = np.arange(len(p))
    first = (spare * np.hstack([p, zero]) <= cap[:, None] * uncapped).argmax(axis=1)
    share = uncapped[rows, first]
    scale = np.where(share > 0, spare[rows, first] / np.where(share > 0, share, 1), np.inf)
    limit = np.where(p > 0, scale[:, None] * np.where(p > 0, p, 1), 0)
    return scale, np.minimum(limit, cap[:, None])
