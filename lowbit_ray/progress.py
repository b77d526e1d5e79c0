"""How far an evaluation is, told through the ledger: whoever can read it can follow, on any machine.

    submissions/<id>/progress.json      what is being done just now            swapped, at most every two seconds
    submissions/<id>/logs/<name>.txt    how a server of it started             created once

`LedgerWatch` writes while an evaluation is at work; `look` reads one moment, `follow` every change until the end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

from pydantic import ValidationError

from lowbit_ray.errors import ConfigError, LedgerError
from lowbit_ray.ledger import Ledger
from lowbit_ray.rules import _Described, _Frozen
from lowbit_ray.standing import TERMINAL, arrival, find_submission, read_standing
from lowbit_ray.submission import State

__all__ = [
    "LedgerWatch",
    "Moment",
    "Progress",
    "Watch",
    "Watches",
    "follow",
    "look",
    "read_progress",
    "start_log",
    "start_log_names",
    "store_start_log",
]

INTERVAL_S = 2.0
LOG_BYTES = 2**16


class Progress(_Described):
    """What an evaluation is doing just now."""

    step: str
    """`build`, `contract`, `timed-…`; empty between two."""
    what: str
    """In words; empty where a step has only begun."""
    done: int
    total: int
    """0 where it is not known."""
    since: datetime
    """When this step began; between two, when the one before ended."""
    at: datetime
    """When this was written."""
    host: str
    """Where the driver runs."""
    attempt: int


class Moment(_Frozen):
    """One submission at one moment."""

    submission: str
    state: State
    steps: tuple[str, ...]
    """Names of the steps that are done."""
    progress: Progress | None
    """None where nothing is at work."""
    score: float | None
    score_se: float | None
    """Both of the record, once there is one with a score."""
    qualified: bool | None = None
    """Whether contract, engine rules and all gates are kept; None before the verdict."""
    reason: str | None = None
    """Why it did not qualify, or has no score."""
    queue_position: int | None = None
    """From 1, while it waits; None where only the ledger was asked."""

    @property
    def over(self) -> bool:
        """Whether nothing will change any more."""
        return self.state.status in TERMINAL


class Watch(Protocol):
    """Who is told how far an evaluation is."""

    def begin(self, step: str) -> None:
        """A step begins."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """Within the step: what is being done, and how much of it; a total of 0 is unknown."""
        ...

    def end(self, step: str, seconds: float, *, reused: bool) -> None:
        """The step is done, or was done by an earlier attempt."""
        ...


class Watches:
    """Several watches that are told the same."""

    def __init__(self, *watches: Watch) -> None:
        self._watches = watches

    def begin(self, step: str) -> None:
        for watch in self._watches:
            watch.begin(step)

    def progress(self, what: str, done: int, total: int) -> None:
        for watch in self._watches:
            watch.progress(what, done, total)

    def end(self, step: str, seconds: float, *, reused: bool) -> None:
        for watch in self._watches:
            watch.end(step, seconds, reused=reused)


class LedgerWatch:
    """Writes progress.json from a thread of its own, so that a slow store delays nothing.

    with LedgerWatch(ledger, submission, attempt) as watch: ...

    Progress is not worth an evaluation: where the ledger fails, the next change is written again. Once a later
    attempt writes, this one says nothing more.
    """

    def __init__(
        self, ledger: Ledger, submission: str, attempt: int, *, interval_s: float = INTERVAL_S
    ) -> None:
        self._ledger = ledger
        self._key = _key(submission)
        self._attempt = attempt
        self._interval_s = interval_s
        self._changed = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"progress-{submission}", daemon=True)
        self._step, self._since = "", datetime.now(UTC)
        self._line = ("", 0, 0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._changed.set()
        self._thread.join()

    def begin(self, step: str) -> None:
        self._step, self._since = step, datetime.now(UTC)
        self.progress("", 0, 0)

    def progress(self, what: str, done: int, total: int) -> None:
        self._line = (what, done, total)
        self._changed.set()

    def end(self, step: str, seconds: float, *, reused: bool) -> None:
        """Writes nothing: the step's own object says it. What comes before the next step belongs to none."""
        self._step, self._since, self._line = "", datetime.now(UTC), ("", 0, 0)

    def _run(self) -> None:
        while not self._done.is_set():
            self._changed.wait()
            self._changed.clear()
            with contextlib.suppress(LedgerError):
                if not self._write():
                    return
            self._done.wait(self._interval_s)

    def _write(self) -> bool:
        """False where a later attempt is at work."""
        what, done, total = self._line
        now = Progress(
            step=self._step,
            what=what,
            done=done,
            total=total,
            since=self._since,
            at=datetime.now(UTC),
            host=socket.gethostname(),
            attempt=self._attempt,
        )
        data = now.model_dump_json().encode()
        entry = self._ledger.read(self._key)
        if entry is None:
            return self._ledger.create(self._key, data)
        before = _parse(entry.data)
        if before is not None and before.attempt > self._attempt:
            return False
        return self._ledger.swap(self._key, data, entry.version)


def read_progress(ledger: Ledger, submission: str) -> Progress | None:
    """The last progress that was written, by whichever attempt; None where there is none."""
    entry = ledger.read(_key(submission))
    return None if entry is None else _parse(entry.data)


def look(ledger: Ledger, submission: str) -> Moment:
    """Where a submission stands just now: a listing and a few small objects. ConfigError where there is none."""
    handed_in = find_submission(ledger, submission)
    if handed_in is None:
        raise ConfigError("no such submission", where="ledger", found=submission)
    standing = read_standing(ledger, arrival(handed_in))
    assert standing is not None  # it was just read
    prefix = f"submissions/{submission}/stages/"
    steps = [key.removeprefix(prefix).removesuffix(".json") for key in ledger.keys(prefix)]
    running = standing.state.status == "running"
    summary = standing.summary
    return Moment(
        submission=submission,
        state=standing.state,
        steps=tuple(sorted(steps)),
        progress=read_progress(ledger, submission) if running else None,
        score=summary.score if summary else None,
        score_se=summary.score_se if summary else None,
        qualified=summary.qualified if summary else None,
        reason=summary.reason if summary else None,
    )


def follow(ledger: Ledger, submission: str, *, poll_s: float = INTERVAL_S) -> Iterator[Moment]:
    """The present moment, then each that differs from the one before, to the last.

    Errors as `look`; a store that fails while it is followed is asked again.
    """
    last = look(ledger, submission)
    yield last
    while not last.over:
        time.sleep(poll_s)
        with contextlib.suppress(LedgerError):
            moment = look(ledger, submission)
            if moment != last:
                yield moment
                last = moment


def store_start_log(ledger: Ledger, submission: str, name: str, text: str) -> None:
    """Keeps the end of what a server printed while it started, for the participant.

    Never what it printed later: it has seen hidden prompts by then, and a server may print what it is asked.
    """
    data = text.encode(errors="replace")[-LOG_BYTES:]
    with contextlib.suppress(LedgerError):  # a log is not worth an evaluation
        ledger.create(f"submissions/{submission}/logs/{name}.txt", data)


def start_log_names(ledger: Ledger, submission: str) -> list[str]:
    """Names of the kept start-up logs."""
    prefix = f"submissions/{submission}/logs/"
    return [key.removeprefix(prefix).removesuffix(".txt") for key in ledger.keys(prefix)]


def start_log(ledger: Ledger, submission: str, name: str) -> str | None:
    """One kept start-up log; None where there is none of this name."""
    entry = ledger.read(f"submissions/{submission}/logs/{name}.txt")
    return None if entry is None else entry.data.decode(errors="replace")


def _key(submission: str) -> str:
    return f"submissions/{submission}/progress.json"


def _parse(data: bytes) -> Progress | None:
    try:
        return Progress.model_validate_json(data)
    except ValidationError:
        return None  # another version's
