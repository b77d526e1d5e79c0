"""Accepting submissions, and the index of all of them: who waits, who runs, who is done.

The index lives in memory and follows the ledger at little cost: new arrivals come from an incremental listing of
`accepted/`, whatever has a lease is read again each time, and of those that wait only the head of the queue and a
window that moves on. A finished submission is read once. With 10,000 submissions a refresh of a folder takes
milliseconds, the first one seconds.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TypeVar

from lowbit_ray.board import Row, rank
from lowbit_ray.ledger import Ledger
from lowbit_ray.rules import Rules
from lowbit_ray.standing import (
    Cancellation,
    Flag,
    Standing,
    arrival,
    find_submission,
    keep_submission,
    read_standing,
)
from lowbit_ray.submission import Submission

__all__ = ["Cancellation", "Flag", "Index", "Standing", "accept"]

SKEW = timedelta(minutes=10)
"""Clocks of those who accept may differ by as much: arrivals are listed again from this long before the last."""
WHOLE_S = 600.0
"""After so long all of them are: one that was half accepted, or imported, comes with a time of long ago."""
HEAD = 64
"""How many of the first in the queue are read again at each refresh."""
WINDOW = 200
"""How many of the others are, in turn."""

T = TypeVar("T")
R = TypeVar("R")


def accept(ledger: Ledger, submission: Submission) -> bool:
    """Takes a submission in; False where its id was taken in before, which then stays as it was.

    A crash between the two objects is repaired by whoever hands the same submission in again.
    """
    kept, new = keep_submission(ledger, submission)
    ledger.create(f"accepted/{arrival(kept)}", b"")
    return new


class Index:
    """All submissions of a ledger, as of the last `refresh`; reading needs no lock and never waits."""

    def __init__(self, ledger: Ledger, *, workers: int = 16, whole_s: float = WHOLE_S) -> None:
        """workers: threads that read at once. whole_s: after so long all arrivals are listed again."""
        self._ledger = ledger
        self._whole_s = whole_s
        self._listed_at = -math.inf  # all of them, by the monotonic clock
        self._workers = workers
        self._lock = threading.Lock()
        self._standings: dict[str, Standing] = {}
        self._open: dict[str, Standing] = {}  # of them those that are not over
        self._flagged: set[str] = set()  # every one that has ever been
        self._last = ""
        self._window = 0
        self._boards: dict[str, tuple[int, list[Row]]] = {}
        self.generation = 0
        """Counts the refreshes that changed something."""
        self.verdicts = 0
        """Counts those that changed something which a board shows."""
        self.refreshed_at: datetime | None = None
        """When the ledger last answered a whole refresh."""
        self.unreadable: dict[str, str] = {}
        """Submissions whose objects are not of this version, and why; they are left out."""

    def refresh(self) -> None:
        """Follows the ledger; LedgerError where it fails, and the index stays as it was."""
        with self._lock:
            known, at = self._standings, time.monotonic()
            whole = at - self._listed_at > self._whole_s
            names = self._arrivals("" if whole else self._since())
            arrivals = [name for name in names if name.rpartition("-")[2] not in known]
            flags = self._flags()
            looked = self._many(self._look, [*arrivals, *(s.arrival for s in self._unsettled())])
            changed = {s.id: s for s in looked if s is not None and known.get(s.id) != s}
            for name in flags.keys() | self._flagged:
                standing = changed.get(name, known.get(name))
                if standing is not None and standing.flag != flags.get(name):
                    changed[name] = replace(standing, flag=flags.get(name))
            self._publish(changed)
            # only now: what a refresh that failed had listed is to be listed again
            self._listed_at = at if whole else self._listed_at
            self._last = max([self._last, *names[-1:]])
            self.refreshed_at = datetime.now(UTC)

    def reread(self, submission: str) -> Standing | None:
        """The standing of one submission, read from the ledger now; None where there is no such submission."""
        try:
            handed_in = find_submission(self._ledger, submission)
        except ValueError as error:
            self.unreadable[submission] = str(error)[:200]
            return None
        if handed_in is None:
            return None
        standing = self._look(arrival(handed_in))
        if standing is None:
            return None
        with self._lock:
            old = self._standings.get(submission)
            standing = replace(standing, flag=self._flag(submission))
            if standing != old:
                self._publish({submission: standing})
        return standing

    def get(self, submission: str) -> Standing | None:
        """The standing of one submission as of the last refresh."""
        return self._standings.get(submission)

    def all(self) -> list[Standing]:
        """Every submission, in the order of arrival."""
        return sorted(self._standings.values(), key=lambda s: s.arrival)

    def waiting(self) -> list[Standing]:
        """Those that nobody is evaluating yet, in the order of arrival."""
        return sorted(
            (s for s in self._open.values() if s.state.status == "waiting"), key=lambda s: s.arrival
        )

    def running(self) -> list[Standing]:
        """Those that somebody is evaluating."""
        return sorted(
            (s for s in self._open.values() if s.state.status == "running"), key=lambda s: s.arrival
        )

    def finished(self) -> list[Standing]:
        """Those with a record."""
        return [s for s in self.all() if s.summary is not None]

    def of(self, participant: str) -> list[Standing]:
        """One participant's, in the order of arrival."""
        return [s for s in self.all() if s.submission.participant == participant]

    def board(self, task: str, rules: Rules) -> list[Row]:
        """The task's board; computed again only after a change."""
        generation, standings = self.verdicts, self._standings
        cached = self._boards.get(task)
        if cached is None or cached[0] != generation:
            theirs = [s for s in standings.values() if s.submission.task_id == task and s.summary is not None]
            flags = {s.id: s.flag.reason for s in theirs if s.flag is not None}
            finished = [s.summary for s in theirs if s.summary is not None]
            rows = rank(finished, rules, off_board=flags, stopped=self.stopped_hours(task))
            cached = self._boards[task] = (generation, rows)
        return cached[1]

    def stopped_hours(self, task: str) -> dict[str, float]:
        """GPU-hours of evaluations of the task that their participants cancelled, by participant."""
        hours: dict[str, float] = {}
        for standing in self._standings.values():
            if standing.submission.task_id == task and standing.stopped_hours:
                name = standing.submission.participant
                hours[name] = hours.get(name, 0.0) + standing.stopped_hours
        return hours

    @property
    def standings(self) -> Mapping[str, Standing]:
        """By id; a snapshot that later refreshes leave alone."""
        return MappingProxyType(self._standings)

    def _publish(self, changed: dict[str, Standing]) -> None:
        if not changed:
            return
        self._standings = self._standings | changed
        self._open = {k: v for k, v in (self._open | changed).items() if not v.over}
        self._flagged |= {name for name, standing in changed.items() if standing.flag is not None}
        self.generation += 1
        if any(s.summary is not None or s.stopped_hours for s in changed.values()):
            self.verdicts += 1

    def _arrivals(self, after: str) -> list[str]:
        """Names under `accepted/` that come after `after`."""
        return [key.removeprefix("accepted/") for key in self._ledger.keys("accepted/", after=after)]

    def _since(self) -> str:
        stamp, _, _ = self._last.partition("-")
        try:
            last = datetime.strptime(stamp, "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
        except ValueError:
            return ""
        return f"accepted/{last - SKEW:%Y%m%dT%H%M%S.%f}"

    def _flags(self) -> dict[str, Flag]:
        names = [key.removeprefix("flags/").removesuffix(".json") for key in self._ledger.keys("flags/")]
        found = {name: self._flag(name) for name in names}
        return {name: flag for name, flag in found.items() if flag is not None}

    def _flag(self, name: str) -> Flag | None:
        """The flag of a submission, None where there is none, it was lifted or cannot be read."""
        entry = self._ledger.read(f"flags/{name}.json")
        try:
            flag = None if entry is None else Flag.model_validate_json(entry.data)
        except ValueError as error:
            self.unreadable[f"flags/{name}"] = str(error)[:200]
            return None
        return None if flag is None or flag.lifted else flag

    def _unsettled(self) -> Iterable[Standing]:
        """Those to be read again this time."""
        yield from (s for s in self._open.values() if s.lease is not None)
        queue = sorted((s for s in self._open.values() if s.lease is None), key=lambda s: s.arrival)
        yield from queue[:HEAD]
        rest = queue[HEAD:]
        start = self._window if self._window < len(rest) else 0
        yield from rest[start : start + WINDOW]
        self._window = start + WINDOW

    def _look(self, arrived: str) -> Standing | None:
        name = arrived.rpartition("-")[2]
        try:
            standing = read_standing(self._ledger, arrived, self._standings.get(name))
        except (ValueError, KeyError, TypeError) as error:
            self.unreadable[name] = str(error)[:200]
            return None
        self.unreadable.pop(name, None)
        return standing

    def _many(self, work: Callable[[T], R], items: list[T]) -> list[R]:
        """In threads where there are many: a store over the network answers slowly, but many at once."""
        if len(items) < 8:
            return [work(item) for item in items]
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(work, items))
