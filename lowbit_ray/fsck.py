"""Whether a ledger is whole: every object can be read, belongs to something, and agrees with its neighbours."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from lowbit_ray.board import summarize
from lowbit_ray.index import accept
from lowbit_ray.journal import Action
from lowbit_ray.lease import Lease
from lowbit_ray.ledger import Ledger
from lowbit_ray.migration import migrate
from lowbit_ray.people import Person
from lowbit_ray.rules import _Frozen
from lowbit_ray.standing import Cancellation, Flag, arrival
from lowbit_ray.submission import Submission

__all__ = ["Fault", "fsck"]

PREFIXES = ("submissions", "accepted", "flags", "people", "quotas", "audit", "tasks", "nodes", "dispatch")
OF_SUBMISSION: dict[str, Callable[[bytes], Any]] = {
    "submission.json": Submission.model_validate_json,
    "lease.json": Lease.model_validate_json,
    "cancelled.json": Cancellation.model_validate_json,
    "record.json": lambda data: summarize(migrate(json.loads(data))),
    "progress.json": json.loads,
}
OTHERS: dict[str, Callable[[bytes], Any]] = {
    "flags": Flag.model_validate_json,
    "people": Person.model_validate_json,
    "audit": Action.model_validate_json,
    "quotas": json.loads,
    "dispatch": json.loads,
    "nodes": json.loads,
    "attempts": Lease.model_validate_json,
    "stages": json.loads,
}


class Fault(_Frozen):
    """One thing that is not as it should be."""

    key: str
    what: str
    repaired: bool = False


def fsck(ledger: Ledger, *, repair: bool = False) -> list[Fault]:
    """All faults of a ledger; with `repair`, submissions that a crash left out of the queue are put into it.

    Nothing is ever removed or replaced.
    """
    keys = ledger.keys("")
    by_submission: dict[str, set[str]] = defaultdict(set)
    accepted: dict[str, str] = {}
    faults: list[Fault] = []
    for key in keys:
        first, _, rest = key.partition("/")
        if first == "submissions" and "/" in rest:
            name, _, inside = rest.partition("/")
            by_submission[name].add(inside)
        elif first == "accepted":
            accepted[rest.rpartition("-")[2]] = rest
        elif first not in PREFIXES:
            faults.append(Fault(key=key, what="no object of a ledger"))
        elif first in OTHERS:
            faults += _unreadable(ledger, key, OTHERS[first])
    for name, objects in sorted(by_submission.items()):
        faults += _submission_faults(ledger, name, objects, accepted.get(name), repair)
    missing = sorted(accepted.keys() - by_submission.keys())
    faults += [
        Fault(key=f"accepted/{accepted[name]}", what="there is no such submission") for name in missing
    ]
    return faults


def _submission_faults(
    ledger: Ledger, name: str, inside: set[str], arrived: str | None, repair: bool
) -> Iterator[Fault]:
    folder = f"submissions/{name}/"
    if "submission.json" not in inside:
        yield Fault(key=folder, what="objects of a submission that is not there")
        return
    for each in sorted(inside):
        parse = OF_SUBMISSION.get(each) or OTHERS.get(each.partition("/")[0])
        if parse is not None:
            yield from _unreadable(ledger, folder + each, parse)
    entry = ledger.read(folder + "submission.json")
    try:
        submission = Submission.model_validate_json(entry.data if entry else b"")
    except ValueError:
        return  # said above
    if submission.id != name:
        yield Fault(key=folder + "submission.json", what=f"is of {submission.id}")
    elif arrived is None:
        if repair:
            accept(ledger, submission)
        yield Fault(key=folder, what="was never put into the queue", repaired=repair)
    elif arrived != arrival(submission):
        yield Fault(key=f"accepted/{arrived}", what=f"should be {arrival(submission)}")
    yield from _record_faults(ledger, submission, inside)


def _record_faults(ledger: Ledger, submission: Submission, inside: set[str]) -> Iterator[Fault]:
    """Whether the record is that of the submission."""
    entry = ledger.read(f"submissions/{submission.id}/record.json") if "record.json" in inside else None
    if entry is None:
        return
    try:
        record = json.loads(entry.data)
        for name in ("id", "participant", "task_id", "split", "track"):
            if record[name] != getattr(submission, name):
                yield Fault(
                    key=f"submissions/{submission.id}/record.json", what=f"another {name}: {record[name]}"
                )
    except (ValueError, KeyError, TypeError):
        return  # said before


def _unreadable(ledger: Ledger, key: str, parse: Callable[[bytes], Any]) -> Iterator[Fault]:
    entry = ledger.read(key)
    if entry is None:
        return
    try:
        parse(entry.data)
    except (ValueError, KeyError, TypeError) as error:
        yield Fault(key=key, what=f"cannot be read: {str(error).splitlines()[0][:150]}")
