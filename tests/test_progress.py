"""Progress through the ledger, and following it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowbit_ray.errors import ConfigError, LedgerError
from lowbit_ray.lease import hold
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.progress import (
    LedgerWatch,
    Watches,
    follow,
    look,
    read_progress,
    start_log,
    start_log_names,
    store_start_log,
)
from lowbit_ray.submission import Address, Submission, now

ID = "0" * 15 + "1"


class Counting(FolderLedger):
    """A ledger that counts what is written, and fails when told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.writes: list[float] = []
        self.fails = False
        self.away = 0
        """So many listings fail."""

    def keys(self, prefix: str, *, after: str = "") -> list[str]:
        if self.away:
            self.away -= 1
            raise LedgerError("away")
        return super().keys(prefix, after=after)

    def create(self, key: str, data: bytes) -> bool:
        return self._counted() and super().create(key, data)

    def swap(self, key: str, data: bytes, version: str) -> bool:
        return self._counted() and super().swap(key, data, version)

    def _counted(self) -> bool:
        if self.fails:
            raise LedgerError("away")
        self.writes.append(time.monotonic())
        return True


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Counting]:
    made = Counting(tmp_path)
    submission = Submission(
        id=ID,
        participant="somebody",
        task_id="fake",
        checkpoint=Address(kind="folder", location="./x"),
        method="none",
        created_at=now(),
    )
    made.create(f"submissions/{ID}/submission.json", submission.model_dump_json().encode())
    made.writes.clear()
    return made


def wait_for(ledger: FolderLedger, what: str) -> None:
    deadline = time.monotonic() + 10
    while (progress := read_progress(ledger, ID)) is None or progress.what != what:
        assert time.monotonic() < deadline, progress
        time.sleep(0.01)


def test_progress_is_written_with_step_amount_and_attempt(ledger: Counting) -> None:
    with LedgerWatch(ledger, ID, 3, interval_s=0.01) as watch:
        watch.begin("timed-ab")
        watch.progress("timing serve", 7, 64)
        wait_for(ledger, "timing serve")
    progress = read_progress(ledger, ID)
    assert progress is not None
    assert (progress.step, progress.done, progress.total, progress.attempt) == ("timed-ab", 7, 64, 3)
    assert progress.since <= progress.at


def test_what_a_step_said_last_does_not_outlive_it(ledger: Counting) -> None:
    with LedgerWatch(ledger, ID, 0, interval_s=0.01) as watch:
        watch.begin("timed-ab")
        watch.progress("timing serve", 64, 64)
        watch.end("timed-ab", 1.0, reused=False)
        watch.progress("waiting for a pod", 0, 0)
        wait_for(ledger, "waiting for a pod")
    progress = read_progress(ledger, ID)
    assert progress is not None
    assert (progress.step, progress.total) == ("", 0)


def test_many_changes_are_few_writes_and_the_last_one_is_kept(ledger: Counting) -> None:
    with LedgerWatch(ledger, ID, 0, interval_s=0.3) as watch:
        for done in range(300):
            watch.progress("asking", done, 300)
            time.sleep(0.003)
        watch.progress("asked", 300, 300)
        wait_for(ledger, "asked")
    gaps = [later - earlier for earlier, later in zip(ledger.writes, ledger.writes[1:], strict=False)]
    assert len(ledger.writes) >= 2
    assert min(gaps) >= 0.29


def test_a_ledger_that_is_away_ends_nothing_and_is_written_later(ledger: Counting) -> None:
    ledger.fails = True
    with LedgerWatch(ledger, ID, 0, interval_s=0.01) as watch:
        watch.progress("lost", 0, 0)
        time.sleep(0.1)
        ledger.fails = False
        watch.progress("found", 0, 0)
        wait_for(ledger, "found")


def test_an_older_attempt_does_not_write_over_a_later_one(ledger: Counting) -> None:
    with LedgerWatch(ledger, ID, 1, interval_s=0.01) as late:
        late.progress("late", 0, 0)
        wait_for(ledger, "late")
        with LedgerWatch(ledger, ID, 0, interval_s=0.01) as early:
            early.progress("early", 0, 0)
            time.sleep(0.2)
    progress = read_progress(ledger, ID)
    assert progress is not None
    assert progress.what == "late"


def test_several_watches_are_told_the_same(ledger: Counting) -> None:
    with (
        LedgerWatch(ledger, ID, 0, interval_s=0.01) as one,
        LedgerWatch(ledger, "0" * 15 + "2", 0, interval_s=0.01) as two,
    ):
        both = Watches(one, two)
        both.begin("build")
        both.progress("fetching", 1, 2)
        wait_for(ledger, "fetching")
        both.end("build", 1.0, reused=False)
    assert read_progress(ledger, ID) is not None
    assert read_progress(ledger, "0" * 15 + "2") is not None


def test_a_waiting_submission_shows_no_progress(ledger: Counting) -> None:
    moment = look(ledger, ID)
    assert moment.state.status == "waiting"
    assert moment.progress is None
    assert not moment.over


def test_a_submission_that_is_not_there_is_named(ledger: Counting) -> None:
    with pytest.raises(ConfigError, match="f" * 16):
        look(ledger, "f" * 16)


def test_following_tells_each_change_and_ends_with_the_verdict(ledger: Counting) -> None:
    seen: list[str] = []

    def evaluate() -> None:
        with hold(ledger, ID), LedgerWatch(ledger, ID, 0, interval_s=0.01) as watch:
            watch.begin("build")
            watch.progress("fetching", 1, 2)
            wait_for(ledger, "fetching")
            time.sleep(0.2)
            ledger.create(f"submissions/{ID}/stages/build.json", b"{}")
            time.sleep(0.2)
            ledger.create(f"submissions/{ID}/cancelled.json", b'{"by":"me","at":"2026-01-01T00:00:00Z"}')
            time.sleep(0.2)

    thread = threading.Thread(target=evaluate)
    for moment in follow(ledger, ID, poll_s=0.02):
        if not seen:
            thread.start()
        seen.append(moment.state.status)
        if moment.progress is not None and moment.progress.what == "fetching":
            seen.append(f"{moment.progress.done} of {moment.progress.total}, done: {moment.steps}")
    thread.join()
    assert seen[0] == "waiting"
    assert "1 of 2, done: ()" in seen
    assert "1 of 2, done: ('build',)" in seen
    assert seen[-1] == "cancelled"
    assert seen.count("cancelled") == 1


def test_a_start_log_is_kept_once_and_only_its_end(ledger: Counting) -> None:
    store_start_log(ledger, ID, "timed-0", "x" * 100_000 + "the end")
    store_start_log(ledger, ID, "timed-0", "another")
    assert start_log_names(ledger, ID) == ["timed-0"]
    kept = start_log(ledger, ID, "timed-0")
    assert kept is not None
    assert kept.endswith("the end")
    assert len(kept) == 2**16
    assert start_log(ledger, ID, "timed-1") is None


def test_following_outlasts_a_store_that_is_away_for_a_while(ledger: Counting) -> None:
    moments = follow(ledger, ID, poll_s=0.01)
    assert next(moments).state.status == "waiting"
    ledger.create(f"submissions/{ID}/cancelled.json", b'{"by":"me","at":"2026-01-01T00:00:00Z"}')
    ledger.away = 3
    assert [moment.state.status for moment in moments] == ["cancelled"]
    assert ledger.away == 0
