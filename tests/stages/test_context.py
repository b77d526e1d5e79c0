"""Steps are done once, by one plan, and kept by whoever has the lease."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes.arena import SMALL, Arena

from lowbit_ray.errors import LedgerError
from lowbit_ray.lease import LeaseHeld, hold
from lowbit_ray.patience import PatientLedger
from lowbit_ray.rules import _Frozen, load_rules
from lowbit_ray.stages.context import Evaluation, step_times
from lowbit_ray.submission import Submission


class Measured(_Frozen):
    """What a step measures here."""

    value: int


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena.build(tmp_path / "arena", **SMALL)


@pytest.fixture
def submission(arena: Arena) -> Submission:
    return arena.submit(arena.root / "anchor")


@contextmanager
def evaluation(arena: Arena, submission: Submission, **changes: Any) -> Iterator[Evaluation]:
    """One attempt that holds its lease until the block ends."""
    with hold(arena.ledger, submission.id) as tenure:
        yield arena.attempt(submission, tenure, **changes)


def measure(attempt: Evaluation, value: int) -> int:
    return attempt.step("timed", Measured, lambda: Measured(value=value)).value


def test_a_step_is_done_once(arena: Arena, submission: Submission) -> None:
    for value in (1, 2):
        with evaluation(arena, submission) as attempt:
            assert measure(attempt, value) == 1
            assert attempt.finished("timed", Measured) == Measured(value=1)


@pytest.mark.parametrize("what", ["rules", "task", "settings"])
def test_what_was_measured_by_another_plan_is_measured_again(
    arena: Arena, submission: Submission, what: str
) -> None:
    """Other workloads, other flags of the task, another seed of the prompts: a pair of two sorts is no pair."""
    rules, task = load_rules(), arena.task
    flags = rules.engine_flags.model_copy(update={"max_num_seqs": 7})
    other = {
        "rules": rules.model_copy(update={"engine_flags": flags}),
        "task": task.model_copy(update={"engine": task.engine.model_copy(update={"max_model_len": 1024})}),
        "settings": arena.settings.model_copy(update={"secret": "ab" * 32}),
    }[what]
    with evaluation(arena, submission) as attempt:
        assert measure(attempt, 1) == 1
    with evaluation(arena, submission, **{what: other}) as attempt:
        assert attempt.finished("timed", Measured) is None
        assert measure(attempt, 2) == 2
        assert attempt.finished("timed", Measured) == Measured(value=2)
    assert [step.attempt for step in step_times(arena.ledger, submission.id)] == [1]


def test_what_no_measurement_goes_by_may_change(arena: Arena, submission: Submission) -> None:
    """The voided domains, who may wait for how long, a title."""
    with evaluation(arena, submission) as attempt:
        measure(attempt, 1)
    rules = load_rules().model_copy(update={"voided_tasks": {"math": "leaked"}})
    pod = arena.task.pod.model_copy(update={"wait_s": 7.0})
    task = arena.task.model_copy(update={"title": "Another", "pod": pod})
    with evaluation(arena, submission, rules=rules, task=task) as attempt:
        assert measure(attempt, 2) == 1


def test_a_step_that_another_process_has_kept_meanwhile_is_theirs(
    arena: Arena, submission: Submission
) -> None:
    """One whose lease has expired while it hung, and who has not noticed."""
    with evaluation(arena, submission) as attempt:

        def compute() -> Measured:
            assert arena.ledger.create(f"submissions/{submission.id}/stages/timed.json", b"theirs")
            return Measured(value=1)

        with pytest.raises(LeaseHeld, match="meanwhile"):
            attempt.step("timed", Measured, compute)
    entry = arena.ledger.read(f"submissions/{submission.id}/stages/timed.json")
    assert entry is not None
    assert entry.data == b"theirs"


def test_a_write_whose_answer_was_lost_is_no_other_processs(arena: Arena, submission: Submission) -> None:
    class Deaf(type(arena.ledger)):  # type: ignore[misc]
        """Writes, and the first answer gets lost."""

        def create(self, key: str, data: bytes) -> bool:
            created = super().create(key, data)
            if created and "/stages/" in key:
                raise LedgerError("the connection was lost")
            return bool(created)

    ledger = PatientLedger(Deaf(arena.ledger.root), first_wait_s=0.01)
    with evaluation(arena, submission, ledger=ledger) as attempt:
        assert measure(attempt, 1) == 1


def test_nothing_is_done_once_the_lease_is_lost(arena: Arena, submission: Submission) -> None:
    with evaluation(arena, submission) as attempt:
        attempt.tenure.lost.set()
        with pytest.raises(LeaseHeld):
            measure(attempt, 1)
        with pytest.raises(LeaseHeld):
            attempt.check_lease()
