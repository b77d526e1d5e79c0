"""Accepting, and the index that follows the ledger: complete, in order, and cheap."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lowbit_ray.errors import LedgerError
from lowbit_ray.index import HEAD, WINDOW, Cancellation, Flag, Index, accept
from lowbit_ray.lease import Lease
from lowbit_ray.ledger import Entry, FolderLedger
from lowbit_ray.rules import load_rules
from lowbit_ray.standing import arrival
from lowbit_ray.submission import Address, Submission, new_id

START = datetime(2026, 11, 30, 10, tzinfo=UTC)


class Counting(FolderLedger):
    """A ledger that counts what is asked of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[str] = []

    def read(self, key: str) -> Entry | None:
        self.asked.append(key)
        return super().read(key)

    def keys(self, prefix: str, *, after: str = "") -> list[str]:
        self.asked.append(prefix)
        return super().keys(prefix, after=after)


@pytest.fixture
def ledger(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "ledger")


def submission(at: datetime = START, **changes: Any) -> Submission:
    fields: dict[str, Any] = {
        "id": new_id(),
        "participant": "somebody",
        "task_id": "qwen3-8b",
        "checkpoint": Address(kind="hub", location="owner/name", revision="0" * 40),
        "method": "round to nearest",
        "created_at": at,
    }
    return Submission.model_validate({**fields, **changes})


def finish(ledger: FolderLedger, one: Submission, fixtures: Path, **changes: Any) -> None:
    record = json.loads((fixtures / "record-smollm2-w8a8.json").read_text())
    record |= {"id": one.id, "participant": one.participant, "task_id": one.task_id, **changes}
    assert ledger.create(f"submissions/{one.id}/record.json", json.dumps(record).encode())


def lease(ledger: FolderLedger, one: Submission, renewed_at: datetime) -> None:
    held = Lease(holder="host:1:x", attempt=0, renewed_at=renewed_at)
    ledger.create(f"submissions/{one.id}/lease.json", held.model_dump_json().encode())


def test_a_submission_is_accepted_once(ledger: Counting) -> None:
    one = submission()
    assert accept(ledger, one)
    later = one.model_copy(update={"created_at": START + timedelta(minutes=5), "method": "another"})
    assert not accept(ledger, later)
    assert ledger.keys("accepted/") == [f"accepted/{arrival(one)}"]


def test_a_crash_between_the_two_objects_is_repaired_by_the_next_try(ledger: Counting) -> None:
    one = submission()
    ledger.create(f"submissions/{one.id}/submission.json", one.model_dump_json().encode())
    assert not accept(ledger, one.model_copy(update={"created_at": START + timedelta(hours=1)}))
    assert ledger.keys("accepted/") == [f"accepted/{arrival(one)}"]


def test_the_queue_is_in_the_order_of_arrival(ledger: Counting) -> None:
    times = [3, 1, 2]
    ones = [submission(START + timedelta(microseconds=n)) for n in times]
    for one in ones:
        accept(ledger, one)
    index = Index(ledger)
    index.refresh()
    assert [s.id for s in index.waiting()] == [ones[1].id, ones[2].id, ones[0].id]


def test_each_state_is_seen_at_the_next_refresh(ledger: Counting, fixtures: Path) -> None:
    waiting, running, dead, done, stopped = (submission(START + timedelta(seconds=n)) for n in range(5))
    for one in (waiting, running, dead, done, stopped):
        accept(ledger, one)
    index = Index(ledger)
    index.refresh()
    assert len(index.waiting()) == 5
    lease(ledger, running, datetime.now(UTC))
    ledger.create(f"submissions/{running.id}/stages/build.json", b"{}")
    lease(ledger, dead, datetime.now(UTC) - timedelta(minutes=5))
    finish(ledger, done, fixtures)
    cancel = Cancellation(by="somebody", at=START)
    ledger.create(f"submissions/{stopped.id}/cancelled.json", cancel.model_dump_json().encode())
    index.refresh()
    assert [s.id for s in index.waiting()] == [waiting.id, dead.id]
    assert [(s.id, s.state.stage) for s in index.running()] == [(running.id, "contract")]
    assert [s.id for s in index.finished()] == [done.id]
    standing = index.get(stopped.id)
    assert standing is not None
    assert standing.state.status == "cancelled"


def test_a_late_arrival_with_a_clock_that_is_behind_is_not_missed(ledger: Counting) -> None:
    index = Index(ledger)
    accept(ledger, submission(START))
    index.refresh()
    behind = submission(START - timedelta(minutes=9))
    accept(ledger, behind)
    index.refresh()
    assert behind.id in index.standings


def test_a_refresh_that_fails_in_its_midst_misses_nothing(
    ledger: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of a dispatcher, for one: what it had listed by then is weeks old."""
    old, new = submission(START), submission(START + timedelta(days=30))
    for one in (old, new):
        accept(ledger, one)
    index = Index(ledger)

    def away(key: str) -> None:
        raise LedgerError("the store is away", where=key)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ledger, "read", away)
        with pytest.raises(LedgerError):
            index.refresh()
    assert not index.standings
    index.refresh()
    assert set(index.standings) == {old.id, new.id}


def test_an_arrival_of_long_ago_is_found_in_the_end(ledger: Counting) -> None:
    """Half accepted until now, or imported."""
    accept(ledger, submission(START))
    seldom, often = Index(ledger), Index(ledger, whole_s=0)
    for index in (seldom, often):
        index.refresh()
    late = submission(START - timedelta(days=1))
    accept(ledger, late)
    for index in (seldom, often):
        index.refresh()
    assert late.id not in seldom.standings
    assert late.id in often.standings


def test_one_that_was_cancelled_while_its_driver_was_killed_is_over(ledger: Counting) -> None:
    one = submission()
    accept(ledger, one)
    lease(ledger, one, datetime.now(UTC) - timedelta(minutes=5))  # never released
    cancel = Cancellation(by="somebody", at=START).model_dump_json().encode()
    ledger.create(f"submissions/{one.id}/cancelled.json", cancel)
    index = Index(ledger)
    index.refresh()
    ledger.asked.clear()
    index.refresh()
    assert ledger.asked == ["accepted/", "flags/"]


def test_what_is_over_is_never_read_again(ledger: Counting, fixtures: Path) -> None:
    for n in range(20):
        one = submission(START + timedelta(hours=n))
        accept(ledger, one)
        finish(ledger, one, fixtures)
    index = Index(ledger)
    index.refresh()
    assert len(index.finished()) == 20
    ledger.asked.clear()
    index.refresh()
    assert ledger.asked == ["accepted/", "flags/"]


def test_a_long_queue_is_looked_through_in_turns(ledger: Counting) -> None:
    ones = [submission(START + timedelta(seconds=n)) for n in range(HEAD + 2 * WINDOW)]
    for one in ones:
        accept(ledger, one)
    index = Index(ledger)
    index.refresh()
    cancel = Cancellation(by="somebody", at=START).model_dump_json().encode()
    ledger.create(f"submissions/{ones[-1].id}/cancelled.json", cancel)
    ledger.asked.clear()
    for _ in range(2):
        index.refresh()
    assert len(ledger.asked) <= 2 * (HEAD + WINDOW + 2) + 1
    assert len(index.waiting()) == len(ones) - 1


def test_one_submission_can_be_read_at_once(ledger: Counting) -> None:
    index = Index(ledger)
    one = submission()
    assert index.reread(one.id) is None
    accept(ledger, one)
    standing = index.reread(one.id)
    assert standing is not None
    assert index.get(one.id) == standing


def test_a_flag_takes_a_row_off_the_board_and_lifting_it_brings_it_back(
    ledger: Counting, fixtures: Path
) -> None:
    one = submission()
    accept(ledger, one)
    finish(ledger, one, fixtures)
    index, rules = Index(ledger), load_rules()
    index.refresh()
    assert index.board("qwen3-8b", rules)[0].rank == 1
    flag = Flag(by="organizer", at=START, reason="memorized answers")
    ledger.create(f"flags/{one.id}.json", flag.model_dump_json().encode())
    index.refresh()
    (row,) = index.board("qwen3-8b", rules)
    assert (row.rank, row.flagged) == (None, "memorized answers")
    assert index.finished()[0].flag == flag
    entry = ledger.read(f"flags/{one.id}.json")
    assert entry is not None
    lifted = flag.model_copy(update={"lifted": True}).model_dump_json().encode()
    assert ledger.swap(f"flags/{one.id}.json", lifted, entry.version)
    index.refresh()
    assert index.board("qwen3-8b", rules)[0].rank == 1


@pytest.mark.parametrize(
    ("by", "lease", "hours"),
    [
        ("somebody", {"pod_seconds": 1800.0, "gpus": 2}, 1.0),
        ("organizer", {"pod_seconds": 1800.0, "gpus": 2}, 0.0),
        ("somebody", {"pod_seconds": 1800.0, "gpus": 2, "ours": True}, 0.0),
        ("somebody", {"pod_seconds": 1800.0, "gpus": 0}, 0.0),
        ("somebody", None, 0.0),
    ],
)
def test_an_evaluation_that_its_participant_cancels_costs_what_it_used(
    ledger: Counting, fixtures: Path, by: str, lease: dict[str, Any] | None, hours: float
) -> None:
    done, stopped = submission(), submission(START + timedelta(hours=1))
    for one in (done, stopped):
        accept(ledger, one)
    finish(ledger, done, fixtures, charged_hours=0.5)
    index, rules = Index(ledger), load_rules()
    index.refresh()
    assert index.board("qwen3-8b", rules)[0].gpu_hours == 0.5
    if lease is not None:
        held = Lease(holder="host:1:x", attempt=0, renewed_at=START, released=True, **lease)
        ledger.create(f"submissions/{stopped.id}/lease.json", held.model_dump_json().encode())
    cancel = Cancellation(by=by, at=START).model_dump_json().encode()
    ledger.create(f"submissions/{stopped.id}/cancelled.json", cancel)
    index.refresh()
    (row,) = index.board("qwen3-8b", rules)
    assert row.gpu_hours == 0.5 + hours
    assert row.board_score == pytest.approx((row.score or 0) * math.exp(-row.gpu_hours / 100))


def test_one_object_that_cannot_be_read_hides_no_other(ledger: Counting, fixtures: Path) -> None:
    good, bad = submission(), submission()
    for one in (good, bad):
        accept(ledger, one)
    ledger.create(f"submissions/{bad.id}/record.json", b'{"status": "done"}')
    index = Index(ledger)
    index.refresh()
    assert set(index.standings) == {good.id}
    assert set(index.unreadable) == {bad.id}


def test_a_flag_or_submission_that_cannot_be_read_stops_nothing(ledger: Counting) -> None:
    good, bad = submission(), submission()
    accept(ledger, good)
    ledger.create(f"submissions/{bad.id}/submission.json", b"{}")
    ledger.create(f"flags/{good.id}.json", b"{}")
    index = Index(ledger)
    index.refresh()
    standing = index.reread(good.id)
    assert standing is not None
    assert standing.flag is None
    assert index.reread(bad.id) is None
    assert set(index.unreadable) == {bad.id, f"flags/{good.id}"}
