"""Where one submission stands, read from its objects in the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from lowbit_ray.board import Summary, summarize
from lowbit_ray.lease import Lease
from lowbit_ray.ledger import Ledger
from lowbit_ray.migration import migrate
from lowbit_ray.rules import _Described
from lowbit_ray.submission import State, Submission, state_of

__all__ = [
    "Cancellation",
    "Flag",
    "Standing",
    "arrival",
    "find_submission",
    "keep_submission",
    "read_standing",
]

TERMINAL = frozenset({"done", "rejected", "failed", "cancelled"})

R = TypeVar("R")


class Cancellation(_Described):
    """Who stopped a submission, and why."""

    by: str
    at: datetime
    reason: str = ""


class Flag(_Described):
    """An organizer's flag: the record stays visible, off the board."""

    by: str
    at: datetime
    reason: str
    lifted: bool = False
    """Whether it was taken back."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one submission stands."""

    submission: Submission
    arrival: str
    """Sorts by the time of acceptance; ends in the id."""
    state: State
    summary: Summary | None = None
    """Of its record, once there is one."""
    lease: Lease | None = None
    cancelled: Cancellation | None = None
    flag: Flag | None = None

    @property
    def id(self) -> str:
        return self.submission.id

    @property
    def stopped_hours(self) -> float:
        """GPU-hours of an evaluation that its own participant cancelled: they count on the board like a failed one's.

        Without a record it is the lease that tells them; earlier attempts ended by faults of ours, which cost nothing.
        """
        if self.summary is not None or self.cancelled is None or self.lease is None or self.lease.ours:
            return 0.0
        own = self.cancelled.by == self.submission.participant and self.submission.partition == "participant"
        return self.lease.pod_seconds * self.lease.gpus / 3600 if own else 0.0

    @property
    def over(self) -> bool:
        """Whether nothing will change any more: a verdict, or cancelled and let go of, or by one who has died."""
        settled = self.state.status in TERMINAL
        held = self.lease is not None and self.lease.held(datetime.now(UTC))
        return settled and (self.summary is not None or not held)


def arrival(submission: Submission) -> str:
    """The name under `accepted/` that a submission always gets."""
    return f"{submission.created_at.astimezone(UTC):%Y%m%dT%H%M%S.%f}-{submission.id}"


def find_submission(ledger: Ledger, name: str) -> Submission | None:
    """The submission as it was handed in, None where there is none; ValueError where it is not of this version."""
    entry = ledger.read(_submission_key(name))
    return None if entry is None else Submission.model_validate_json(entry.data)


def keep_submission(ledger: Ledger, submission: Submission) -> tuple[Submission, bool]:
    """Stores it once; the one that stands in the ledger, and whether that is new."""
    if ledger.create(_submission_key(submission.id), submission.model_dump_json().encode()):
        return submission, True
    return find_submission(ledger, submission.id) or submission, False


def _submission_key(name: str) -> str:
    return f"submissions/{name}/submission.json"


def read_standing(ledger: Ledger, arrived: str, known: Standing | None = None) -> Standing | None:
    """The standing of the submission that arrived under this name, None where it is not there (yet).

    known: an earlier standing, whose submission and flag are taken over. Raises ValueError, KeyError or TypeError
    where an object is not of this version.
    """
    name = arrived.rpartition("-")[2]
    folder = f"submissions/{name}/"
    present = {key.removeprefix(folder) for key in ledger.keys(folder)}

    def read(object_name: str, parse: Callable[[bytes], R]) -> R | None:
        entry = ledger.read(folder + object_name) if object_name in present else None
        return None if entry is None else parse(entry.data)

    submission = known.submission if known else read("submission.json", Submission.model_validate_json)
    if submission is None:
        return None
    lease = read("lease.json", Lease.model_validate_json)
    cancelled = read("cancelled.json", Cancellation.model_validate_json)
    summary = read("record.json", lambda data: summarize(migrate(json.loads(data))))
    state = state_of(
        {key.removeprefix("stages/").removesuffix(".json") for key in present if key.startswith("stages/")},
        leased=lease is not None and lease.held(datetime.now(UTC)),
        cancelled=cancelled is not None,
        verdict=None if summary is None else summary.status,
    )
    flag = None if known is None else known.flag
    return Standing(submission, arrived, state, summary, lease, cancelled, flag)
