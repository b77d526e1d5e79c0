"""What was started for a submission and how often that failed by a fault of ours: one object in the ledger each.

Every change is a creation or a swap, so of several dispatchers one counts a failure and one starts the next job.
The object goes when the submission has its verdict.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from lowbit_ray.ledger import Ledger
from lowbit_ray.rules import _Frozen

__all__ = ["Backoff", "Held", "Ticket", "first", "issue", "read_all", "replace", "withdraw"]

PREFIX = "dispatch/"
READERS = 16
"""A store over the network answers slowly, but many at once."""


class Ticket(_Frozen):
    """How far the dispatcher is with one submission."""

    job: int = 0
    """Which job, counted from 0; its name in Ray follows from it."""
    since: datetime
    """When it was to start."""
    due_at: datetime | None = None
    """Set once that job has ended: the next one is not started before."""
    faults: int = 0
    """How many ended by a fault of ours."""
    failing_since: datetime | None = None
    """When the first of them ended."""
    reason: str = ""
    """Why the last one ended."""

    def ended(self, at: datetime, delay_s: float, reason: str, *, fault: bool) -> Ticket:
        """The job has ended without a verdict; the next may start `delay_s` after `at`."""
        return Ticket(
            job=self.job,
            since=self.since,
            due_at=at + timedelta(seconds=delay_s),
            faults=self.faults + fault,
            failing_since=self.failing_since or (at if fault else None),
            reason=reason,
        )

    def again(self, at: datetime) -> Ticket:
        """The next job is to start."""
        return self.model_copy(update={"job": self.job + 1, "since": at, "due_at": None})


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after a fault of ours, and how many of them end it."""

    first_s: float = 10.0
    factor: float = 3.0
    most_s: float = 900.0
    faults: int = 6
    """With this one the submission is recorded as failed, free of charge."""
    busy_s: float = 15.0
    """Wait where nothing failed: somebody else was at it, or there was no pod."""

    def delay_s(self, faults: int) -> float:
        """Seconds to wait after the `faults`-th fault, from 1."""
        return min(self.most_s, self.first_s * self.factor ** (faults - 1))


@dataclass(frozen=True, slots=True)
class Held:
    """A ticket as it was read."""

    ticket: Ticket
    version: str


def first(at: datetime) -> Ticket:
    """The ticket of a submission's first job."""
    return Ticket(since=at)


def read_all(ledger: Ledger, unreadable: dict[str, str] | None = None) -> dict[str, Held]:
    """All tickets, by submission; those that are not of this version are left out, and `unreadable` says why."""
    found: dict[str, Held] = {}
    keys = ledger.keys(PREFIX)
    with ThreadPoolExecutor(READERS) as readers:
        entries = list(readers.map(ledger.read, keys))
    for key, entry in zip(keys, entries, strict=True):
        name = key.removeprefix(PREFIX).removesuffix(".json")
        if entry is None:
            continue  # withdrawn meanwhile
        try:
            found[name] = Held(Ticket.model_validate_json(entry.data), entry.version)
        except ValidationError as error:
            if unreadable is not None:
                unreadable[name] = f"its ticket: {str(error)[:200]}"
    return found


def issue(ledger: Ledger, submission: str, ticket: Ticket) -> bool:
    """Stores a first ticket; False where another dispatcher has."""
    return ledger.create(_key(submission), ticket.model_dump_json().encode())


def replace(ledger: Ledger, submission: str, held: Held, ticket: Ticket) -> bool:
    """Stores the ticket in the place of the one held; False where another dispatcher was faster."""
    return ledger.swap(_key(submission), ticket.model_dump_json().encode(), held.version)


def withdraw(ledger: Ledger, submission: str, held: Held) -> None:
    """Removes the ticket of a submission that is over."""
    ledger.remove(_key(submission), held.version)


def _key(submission: str) -> str:
    return f"{PREFIX}{submission}.json"
