"""What counts of several attempts: nothing that failed by a fault of ours, and nothing twice."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lowbit_ray.lease import Lease, record_attempt
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.stages.context import Evaluation, StepTime, _Stored
from lowbit_ray.stages.cost import gpu_hours

ID = "a553eefea2d24359"
START = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, SECOND = "0" * 16, "1" * 16


@pytest.fixture
def ledger(tmp_path: Any) -> FolderLedger:
    return FolderLedger(tmp_path)


def step(ledger: FolderLedger, name: str, attempt: int, minute: int, seconds: float) -> None:
    took = StepTime(
        name=name,
        started_at=START + timedelta(minutes=minute),
        seconds=seconds,
        pod_seconds=seconds,
        attempt=attempt,
    )
    stored = _Stored(time=took, value={})
    assert ledger.create(f"submissions/{ID}/stages/{name}.json", stored.model_dump_json().encode())


def hours(ledger: FolderLedger, *, now: Lease, gpus: int = 1) -> float:
    """Of the submission while its last attempt is at work."""
    evaluation = SimpleNamespace(
        ledger=ledger,
        submission=SimpleNamespace(id=ID),
        tenure=SimpleNamespace(used=lambda: now),
        task=SimpleNamespace(pod=SimpleNamespace(tensor_parallel=gpus)),
    )
    return 3600 * gpu_hours(cast("Evaluation", evaluation))


def lease(attempt: int, pod_seconds: float, *, ours: bool = False, gpus: int = 1) -> Lease:
    return Lease(
        holder="there:1:x", attempt=attempt, renewed_at=START, pod_seconds=pod_seconds, gpus=gpus, ours=ours
    )


def test_an_attempt_that_was_not_disturbed_counts_whole(ledger: FolderLedger) -> None:
    step(ledger, f"timed-{FIRST}", 0, 1, 60)
    assert hours(ledger, now=lease(0, 100)) == pytest.approx(100)


def test_of_a_fault_of_ours_what_the_record_rests_on_counts(ledger: FolderLedger) -> None:
    record_attempt(ledger, ID, lease(0, 500, ours=True, gpus=2))
    step(ledger, f"timed-{FIRST}", 0, 1, 60)
    step(ledger, f"anchor-{FIRST}", 1, 9, 70)
    assert hours(ledger, now=lease(1, 100, gpus=2), gpus=2) == pytest.approx(2 * (60 + 100))


def test_what_was_timed_again_on_another_pod_counts_once(ledger: FolderLedger) -> None:
    """The lost node's pair was a fault of ours."""
    record_attempt(ledger, ID, lease(0, 500, ours=True))
    step(ledger, f"timed-{FIRST}", 0, 1, 60)
    step(ledger, f"anchor-{FIRST}", 0, 2, 70)
    step(ledger, f"capped-long_context-{FIRST}", 0, 3, 80)
    for minute, name in enumerate(("timed", "anchor", "capped-long_context"), start=9):
        step(ledger, f"{name}-{SECOND}", 1, minute, 50)
    assert hours(ledger, now=lease(1, 150)) == pytest.approx(150)


def test_what_a_participant_ended_counts(ledger: FolderLedger) -> None:
    record_attempt(ledger, ID, lease(0, 40))
    assert hours(ledger, now=lease(1, 100)) == pytest.approx(140)
