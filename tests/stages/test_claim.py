"""One evaluation asks the anchor; its claim lives as long as its lease, and no longer."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.arena import SMALL, Arena, Watching

from lowbit_ray.lease import EXPIRES_S, hold, key
from lowbit_ray.stages import claim
from lowbit_ray.stages.claim import take_claim, wait_until_asked
from lowbit_ray.stages.context import Evaluation, step_times
from lowbit_ray.stages.cost import gpu_hours

PART = "tasks/fake/anchors/0123"


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena.build(tmp_path / "arena", **SMALL)


@contextmanager
def evaluation(arena: Arena) -> Iterator[Evaluation]:
    """One that holds its lease until the block ends."""
    submission = arena.submit(arena.root / "anchor")
    with hold(arena.ledger, submission.id) as tenure:
        yield arena.attempt(submission, tenure)


def test_the_first_asks_and_others_do_not(arena: Arena) -> None:
    with evaluation(arena) as first, evaluation(arena) as second:
        assert take_claim(first, PART)
        assert not take_claim(second, PART)
        assert take_claim(first, PART)


def test_who_waits_for_the_part_says_so_and_not_that_it_has_no_pod(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = iter([False, False, True])
    monkeypatch.setattr(claim, "_there", lambda *_: next(there))
    monkeypatch.setattr(claim, "LOOK_S", 0.0)
    unused: Any = None
    pod: Any = SimpleNamespace(facts=SimpleNamespace(name="ab12"))
    with evaluation(arena) as first, evaluation(arena) as second:
        assert take_claim(first, PART)
        wait_until_asked(second, unused, pod, unused, PART)
        assert isinstance(second.watch, Watching)
        assert second.watch.seen == ["waiting for the anchor's answers: another evaluation asks it"]


def test_parts_are_claimed_one_by_one(arena: Arena) -> None:
    with evaluation(arena) as first, evaluation(arena) as second:
        assert take_claim(first, PART)
        assert take_claim(second, f"{PART}-other")


def test_a_claim_ends_with_its_evaluation(arena: Arena) -> None:
    with evaluation(arena) as first:
        assert take_claim(first, PART)
    with evaluation(arena) as second:
        assert take_claim(second, PART)


def test_the_claim_of_one_that_died_is_taken_over_once_its_lease_expires(arena: Arena) -> None:
    with evaluation(arena) as first, evaluation(arena) as second:
        assert take_claim(first, PART)
        entry = arena.ledger.read(key(first.submission.id))
        assert entry is not None
        long_ago = datetime.now(UTC) - timedelta(seconds=EXPIRES_S + 1)
        dead = first.tenure.lease.model_copy(update={"renewed_at": long_ago})
        assert arena.ledger.swap(key(first.submission.id), dead.model_dump_json().encode(), entry.version)
        assert take_claim(second, PART)
        assert not take_claim(first, PART)


def test_the_claim_of_an_earlier_attempt_is_not_the_next_ones(arena: Arena) -> None:
    with evaluation(arena) as first, evaluation(arena) as second:
        assert take_claim(first, PART)
        entry = arena.ledger.read(key(first.submission.id))
        assert entry is not None
        next_one = first.tenure.lease.model_copy(update={"holder": "elsewhere:1:x", "attempt": 1})
        assert arena.ledger.swap(key(first.submission.id), next_one.model_dump_json().encode(), entry.version)
        assert take_claim(second, PART)


def test_a_stretch_without_a_value_stands_among_the_steps_and_is_never_charged_for_a_fault_of_ours(
    arena: Arena,
) -> None:
    with evaluation(arena) as first:
        first.held_s = iter([5.0, 47.0, 0.0, 0.0]).__next__
        for _ in range(2):  # needed again: what stands there stays
            with first.span("reusable-ab12"):
                pass
        (took,) = step_times(arena.ledger, first.submission.id)
        assert (took.name, took.pod_seconds, took.kept) == ("reusable-ab12", 42.0, False)
        ours = first.tenure.lease.model_copy(update={"ours": True})
        attempt = f"submissions/{first.submission.id}/attempts/0000.json"
        arena.ledger.create(attempt, ours.model_dump_json().encode())
        first.tenure.lease = ours.model_copy(update={"attempt": 1, "ours": False})
        assert gpu_hours(first) == 0
