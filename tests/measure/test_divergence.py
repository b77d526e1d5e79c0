"""The bound of a KL divergence from two top-K lists: exact with all ids, never above the truth with fewer."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from lowbit_ray.measure.divergence import tail_mass, token_divergence, unlisted_mass
from lowbit_ray.measure.logprobs import Positions

Array = NDArray[np.float64]


def listed(distribution: Array, top_k: int, actual: int = 0) -> Positions:
    """What a server says of one position."""
    order = np.argsort(-distribution, kind="stable")[:top_k]
    ids = np.full((1, top_k), -1)
    logprobs = np.full((1, top_k), -np.inf)
    ids[0, : len(order)] = order
    logprobs[0, : len(order)] = np.log(distribution[order])
    return Positions(ids, logprobs, np.log(distribution[[actual]]), np.asarray([actual]))


def kl(p: Array, q: Array) -> float:
    return float((p * np.log(p / q)).sum())


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Array, Array, int, int]:
    """P, Q over a small vocabulary, and how many each side lists."""
    size = draw(st.integers(3, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    spread = draw(st.sampled_from([0.3, 1.0, 3.0]))
    p = generator.dirichlet(np.full(size, 1 / spread)) + 1e-12
    q = generator.dirichlet(np.full(size, 1 / spread)) + 1e-12
    if draw(st.booleans()):
        q = p * np.exp(draw(st.sampled_from([0.01, 0.3])) * generator.standard_normal(size))
    return p / p.sum(), q / q.sum(), draw(st.integers(1, size)), draw(st.integers(1, size))


@given(pairs())
@settings(max_examples=400, deadline=None)
def test_the_bound_never_exceeds_the_divergence(case: tuple[Array, Array, int, int]) -> None:
    p, q, mine, theirs = case
    bound = token_divergence(listed(p, mine), listed(q, theirs))[0]
    assert 0 <= bound <= kl(p, q) + 1e-9


@given(pairs())
@settings(max_examples=200, deadline=None)
def test_all_ids_give_the_divergence_itself(case: tuple[Array, Array, int, int]) -> None:
    p, q, _, _ = case
    everything = len(p)
    assert token_divergence(listed(p, everything), listed(q, everything))[0] == pytest.approx(
        kl(p, q), abs=1e-8
    )


@given(pairs())
@settings(max_examples=200, deadline=None)
def test_the_bound_is_never_below_merging_what_is_unlisted_into_the_tail(
    case: tuple[Array, Array, int, int],
) -> None:
    p, q, mine, theirs = case
    a, b = listed(p, mine), listed(q, theirs)
    known = [token for token in a.ids[0] if token in set(b.ids[0]) | {0}]
    p_rest, q_rest = max(0.0, 1 - p[known].sum()), max(1e-9, 1 - q[known].sum())
    merged = sum(p[token] * math.log(p[token] / q[token]) for token in known)
    merged += p_rest * math.log(p_rest / q_rest) if p_rest > 0 else 0
    assert token_divergence(a, b)[0] >= merged - 1e-7


@given(pairs())
@settings(max_examples=200, deadline=None)
def test_more_ids_of_the_anchor_never_loosen_the_bound(case: tuple[Array, Array, int, int]) -> None:
    p, q, mine, _ = case
    whole = listed(q, len(q))
    fewer = token_divergence(listed(p, max(1, mine - 1)), whole)[0]
    assert token_divergence(listed(p, mine), whole)[0] >= fewer - 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_the_minimum_that_a_solver_finds(seed: int) -> None:
    """All q that agree with the candidate's list, by sequential least squares."""
    generator = np.random.default_rng(seed)
    p = np.sort(generator.dirichlet(np.full(8, 0.7)))[::-1]
    q = generator.dirichlet(np.full(8, 0.7))
    a, b = listed(p, 5, actual=7), listed(q, 3, actual=7)
    known = [token for token in a.ids[0] if token in b.ids[0]]
    missing = [token for token in a.ids[0] if token not in b.ids[0]]
    floor = sum(q[token] for token in b.ids[0] if token not in a.ids[0])
    cap, mass = q[b.ids[0]].min(), 1 - q[known].sum()
    parts = np.asarray([*p[missing], 1 - p[a.ids[0]].sum()])

    def cost(x: Array) -> float:
        return float((parts * np.log(parts / x)).sum())

    bounds = [*[(1e-9, cap)] * len(missing), (max(floor, 1e-9), 1.0)]
    start = np.asarray([*[min(cap, mass / (len(missing) + 1)) / 2] * len(missing), mass / 2])
    found = minimize(
        cost,
        start,
        bounds=bounds,
        constraints={"type": "eq", "fun": lambda x: x.sum() - mass},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    expected = kl_part(p[known], q[known]) + found.fun
    assert token_divergence(a, b)[0] == pytest.approx(max(expected, 0), abs=1e-5)


def kl_part(p: Array, q: Array) -> float:
    return float((p * np.log(p / q)).sum())


def test_a_list_of_unlikely_ids_hides_nothing() -> None:
    """An engine that lists rubbish in place of its top: merged into one tail, the divergence would be 0."""
    p = np.asarray([0.5, 0.3, 0.1, *[0.1 / 997] * 997])
    q = np.roll(p, 3)
    evasive = Positions(
        ids=np.asarray([[900, 901, 902]]),
        logprobs=np.log([[1e-4, 1e-4, 1e-4]]),
        actual=np.log(q[[0]]),
        actual_ids=np.asarray([0]),
    )
    bound = token_divergence(listed(p, 3), evasive)[0]
    assert bound > 0.5 * kl(p, q)


def test_equal_lists_have_no_divergence() -> None:
    p = np.asarray([0.5, 0.2, 0.2, 0.1])
    assert token_divergence(listed(p, 2), listed(p, 2))[0] == 0


def test_mass_that_the_lists_do_not_see_is_reported() -> None:
    p = np.asarray([0.5, 0.3, 0.15, 0.05])
    q = np.asarray([0.1, 0.2, 0.3, 0.4])
    assert tail_mass(listed(p, 2))[0] == pytest.approx(0.2)
    assert unlisted_mass(listed(p, 2, actual=3), listed(q, 2, actual=3))[0] == pytest.approx(0.8)


def test_the_texts_own_token_is_known_though_unlisted() -> None:
    p = np.asarray([0.5, 0.3, 0.15, 0.05])
    q = np.asarray([0.1, 0.2, 0.3, 0.4])
    assert unlisted_mass(listed(p, 2, actual=0), listed(q, 2, actual=0))[0] == pytest.approx(0.3)


def test_other_tokens_on_the_two_sides_are_refused() -> None:
    p = np.asarray([0.5, 0.5])
    with pytest.raises(ValueError, match="same tokens"):
        token_divergence(listed(p, 2, actual=0), listed(p, 2, actual=1))


def test_many_positions_are_each_their_own() -> None:
    generator = np.random.default_rng(0)
    rows = [(generator.dirichlet(np.ones(12)), generator.dirichlet(np.ones(12))) for _ in range(50)]
    alone = [token_divergence(listed(p, 4), listed(q, 4))[0] for p, q in rows]
    sides = [
        Positions(
            *(
                np.concatenate(parts)
                for parts in zip(*[astuple(listed(row[i], 4)) for row in rows], strict=True)
            )
        )
        for i in (0, 1)
    ]
    assert token_divergence(*sides) == pytest.approx(alone)


def astuple(positions: Positions) -> tuple[NDArray[np.generic], ...]:
    return positions.ids, positions.logprobs, positions.actual, positions.actual_ids
