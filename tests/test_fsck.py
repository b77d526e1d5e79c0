"""Whether a ledger is whole: each kind of fault is found and named, one kind repaired, nothing removed."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lowbit_ray.fsck import fsck
from lowbit_ray.index import Index, accept
from lowbit_ray.journal import log_action
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import issue_token
from lowbit_ray.submission import Address, Submission

ID = "0123456789abcdef"
FOLDER = f"submissions/{ID}"


@pytest.fixture
def ledger(tmp_path: Path, fixtures: Path) -> FolderLedger:
    """A whole one."""
    ledger = FolderLedger(tmp_path)
    submission = Submission(
        id=ID,
        participant="ann",
        task_id="qwen3-8b",
        split="test",
        checkpoint=Address(kind="hub", location="owner/name", revision="0" * 40),
        method="m",
        created_at=datetime(2026, 11, 30, 10, tzinfo=UTC),
    )
    accept(ledger, submission)
    record = json.loads((fixtures / "record-smollm2-w8a8.json").read_text())
    record |= {"id": ID, "participant": "ann", "task_id": "qwen3-8b", "split": "test"}
    ledger.create(f"{FOLDER}/record.json", json.dumps(record).encode())
    issue_token(ledger, "ann")
    log_action(ledger, "olga", "flagged", ID)
    return ledger


def test_a_whole_ledger_has_no_fault(ledger: FolderLedger) -> None:
    assert fsck(ledger) == []


def drop(key: str) -> Callable[[FolderLedger], object]:
    return lambda ledger: (ledger.root / key).unlink()


def write(key: str, data: bytes) -> Callable[[FolderLedger], object]:
    def do(ledger: FolderLedger) -> None:
        path = ledger.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return do


@pytest.mark.parametrize(
    ("harm", "key", "what"),
    [
        (drop(f"{FOLDER}/submission.json"), FOLDER, "a submission that is not there"),
        (drop(f"accepted/20261130T100000.000000-{ID}"), FOLDER, "never put into the queue"),
        (write("accepted/20261130T100000.000000-ffffffffffffffff", b""), "accepted/", "no such submission"),
        (write(f"{FOLDER}/submission.json", b'{"id": '), f"{FOLDER}/submission.json", "cannot be read"),
        (write(f"{FOLDER}/record.json", b"{}"), f"{FOLDER}/record.json", "cannot be read"),
        (write(f"{FOLDER}/lease.json", b"[]"), f"{FOLDER}/lease.json", "cannot be read"),
        (write(f"{FOLDER}/stages/build.json", b"half"), f"{FOLDER}/stages/build.json", "cannot be read"),
        (write("people/bob.json", b"{}"), "people/bob.json", "cannot be read"),
        (write(f"flags/{ID}.json", b"{}"), f"flags/{ID}.json", "cannot be read"),
        (write("elsewhere/x", b""), "elsewhere/x", "no object of a ledger"),
    ],
)
def test_a_fault_is_found_and_named(
    ledger: FolderLedger, harm: Callable[[FolderLedger], object], key: str, what: str
) -> None:
    harm(ledger)
    before = set(ledger.keys(""))
    assert any(fault.key.startswith(key) and what in fault.what for fault in fsck(ledger))
    assert set(ledger.keys("")) == before


def test_a_record_of_another_is_found(ledger: FolderLedger) -> None:
    path = ledger.root / FOLDER / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"participant": "mallory"}))
    assert [fault.what for fault in fsck(ledger)] == ["another participant: mallory"]


def test_a_submission_that_a_crash_left_out_is_put_into_the_queue(ledger: FolderLedger) -> None:
    drop(f"accepted/20261130T100000.000000-{ID}")(ledger)
    (fault,) = fsck(ledger, repair=True)
    assert fault.repaired
    index = Index(ledger)
    index.refresh()
    assert ID in index.standings
    assert fsck(ledger) == []
