"""Whose fault it is when there is nothing to measure: an address with nothing at it, or a task's own source."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.arena import SMALL, Arena

from lowbit_ray.errors import AbsentError, ConfigError
from lowbit_ray.lease import hold
from lowbit_ray.stages.build import build
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.contract import contract


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena.build(tmp_path / "arena", **SMALL)


@contextmanager
def evaluation(arena: Arena, checkpoint: Path) -> Iterator[Evaluation]:
    submission = arena.submit(checkpoint)
    with hold(arena.ledger, submission.id) as tenure:
        yield arena.attempt(submission, tenure)


def test_an_address_with_nothing_at_it_is_the_participants(arena: Arena) -> None:
    with evaluation(arena, arena.root / "mistyped") as one, pytest.raises(AbsentError, match="not a folder"):
        build(one)


def test_a_source_that_cannot_be_fetched_is_ours(arena: Arena) -> None:
    candidate = arena.candidate("good")
    (arena.root / "anchor").rename(arena.root / "elsewhere")
    with (
        evaluation(arena, candidate) as one,
        pytest.raises(ConfigError, match="the source of the task") as told,
    ):
        build(one)
    assert "HF_TOKEN" in str(told.value)


def test_a_source_that_is_no_checkpoint_is_ours(arena: Arena) -> None:
    candidate = arena.candidate("good")
    (arena.root / "anchor" / "config.json").write_text("{}{")
    with evaluation(arena, candidate) as one:
        built = build(one)
        with pytest.raises(ConfigError, match="the source of the task"):
            contract(one, built)
