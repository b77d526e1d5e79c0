"""The estimators, against closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowbit_ray.stats import (
    clustered_standard_error,
    geometric_mean,
    geometric_mean_error,
    standard_error,
)

reals = st.floats(-1e3, 1e3)


def test_the_geometric_mean_of_a_square_and_one_is_its_root() -> None:
    assert geometric_mean([4.0, 1.0]) == pytest.approx(2.0)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -1.0], [math.nan], [math.inf]])
def test_a_geometric_mean_of_anything_else_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite positive"):
        geometric_mean(values)


def test_the_standard_error_of_two_values_is_half_their_distance() -> None:
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)


def test_one_value_has_no_standard_error() -> None:
    assert standard_error([1.0]) is None
    assert clustered_standard_error([1.0, 2.0], ["a", "a"]) is None


@given(st.lists(reals, min_size=2, max_size=20))
def test_clusters_of_one_give_the_plain_standard_error(values: list[float]) -> None:
    clustered = clustered_standard_error(values, list(range(len(values))))
    assert clustered == pytest.approx(standard_error(values), abs=1e-9)


@given(st.lists(reals, min_size=2, max_size=12), st.integers(2, 4))
def test_repeating_each_value_within_its_cluster_adds_no_information(
    values: list[float], copies: int
) -> None:
    repeated = [value for value in values for _ in range(copies)]
    clusters = [index for index in range(len(values)) for _ in range(copies)]
    assert clustered_standard_error(repeated, clusters) == pytest.approx(standard_error(values), abs=1e-9)


def test_a_value_without_a_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="cluster"):
        clustered_standard_error([1.0], [])


def test_the_error_of_a_geometric_mean_is_that_of_the_mean_of_the_logs() -> None:
    generator = np.random.default_rng(3)
    draws = np.exp(generator.normal(0, [0.01, 0.02, 0.03], size=(200_000, 3)))
    seen = np.exp(np.log(draws).mean(axis=1)).std()
    assert geometric_mean_error([0.01, 0.02, 0.03]) == pytest.approx(seen, rel=0.01)


def test_a_geometric_mean_has_no_error_where_one_part_has_none() -> None:
    assert geometric_mean_error([0.01, None]) is None
    assert geometric_mean_error([]) is None
