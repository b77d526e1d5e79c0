"""How many submissions a participant has left, and taking one: exact, also with several replicas at once.

What counts is what reached a verdict by the participant's doing, and what is still under way. A cancelled one and
one that failed by a fault of ours give their place back. One object a person and task holds the taken places; it
is swapped, so of two that take the last place one gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal

from lowbit_ray.errors import LedgerError
from lowbit_ray.index import Index, Standing
from lowbit_ray.ledger import Ledger
from lowbit_ray.people import Person
from lowbit_ray.rules import Rules, _Frozen
from lowbit_ray.tasks import Task

__all__ = ["SCORED", "PersonsQuotas", "Quota", "Used", "limit_of", "quotas_of", "take", "used"]

SCORED = 3
"""A task and participant, where the rules do not name the task."""
RESERVED_FOR = timedelta(seconds=60)
"""A place taken for a submission that never came is free again after this."""
TRIES = 50


class Place(_Frozen):
    """One place taken."""

    id: str
    split: Literal["dev", "test"]
    at: datetime


class Places(_Frozen):
    """All places that a person has taken in a task."""

    taken: tuple[Place, ...] = ()


class Used(_Frozen):
    """How much of a quota is used."""

    used: int
    limit: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


class Quota(_Frozen):
    """A person's quotas in a task; None: without a limit."""

    task: str
    scored: Used | None
    dev_today: Used | None


class PersonsQuotas(_Frozen):
    """What one person may submit, and has."""

    name: str
    role: Literal["participant", "organizer"]
    scored_per_task: int | None
    """Of their own; None: the rules' number."""
    dev_per_day: int | None
    """Of their own; None: the task's number."""
    quotas: tuple[Quota, ...]
    """Of every task."""


def limit_of(person: Person, task: Task, rules: Rules, split: str) -> int | None:
    """How many a person may submit, in all (test) or a day (dev, UTC); None for organizers."""
    if person.organizer:
        return None
    if split == "test":
        own = person.scored_per_task
        return rules.submission.scored_per_task.get(task.id, SCORED) if own is None else own
    return task.limits.dev_per_day if person.dev_per_day is None else person.dev_per_day


def used(
    ledger: Ledger, standing_of: Callable[[str], Standing | None], person: Person, task: Task, rules: Rules
) -> Quota:
    """What a person has used of their quotas in a task; standing_of: an index's `get`, or its `reread`."""
    entry = ledger.read(_key(person, task))
    places = Places() if entry is None else Places.model_validate_json(entry.data)
    at = datetime.now(UTC)
    held = _held(places, standing_of, at)
    counts: dict[str, Used | None] = {}
    for split in ("test", "dev"):
        limit = limit_of(person, task, rules, split)
        counts[split] = None if limit is None else Used(used=_count(held, split, at), limit=limit)
    return Quota(task=task.id, scored=counts["test"], dev_today=counts["dev"])


def quotas_of(
    ledger: Ledger,
    standing_of: Callable[[str], Standing | None],
    person: Person,
    tasks: Iterable[Task],
    rules: Rules,
) -> PersonsQuotas:
    """All quotas of a person; arguments as those of `used`."""
    return PersonsQuotas(
        name=person.name,
        role=person.role,
        scored_per_task=person.scored_per_task,
        dev_per_day=person.dev_per_day,
        quotas=tuple(used(ledger, standing_of, person, task, rules) for task in tasks),
    )


def take(
    ledger: Ledger,
    index: Index,
    person: Person,
    task: Task,
    split: Literal["dev", "test"],
    new: str,
    limit: int,
) -> bool:
    """Takes a place for the submission `new`; False where there is none left. Taking it again changes nothing."""
    key = _key(person, task)
    for _ in range(TRIES):
        at = datetime.now(UTC)
        entry = ledger.read(key)
        places = Places() if entry is None else Places.model_validate_json(entry.data)
        held = _held(places, index.get, at)
        if any(place.id == new for place in held):
            return True
        if _count(held, split, at) >= limit:
            held = _held(places, lambda name: _now(index, name), at)  # the index may lag behind
            if _count(held, split, at) >= limit:
                return False
        data = Places(taken=(*held, Place(id=new, split=split, at=at))).model_dump_json().encode()
        if ledger.create(key, data) if entry is None else ledger.swap(key, data, entry.version):
            return True
    raise LedgerError("others change this quota all the time", where=key)


def _held(places: Places, standing_of: Callable[[str], Standing | None], at: datetime) -> tuple[Place, ...]:
    """The places that still count; dev ones of earlier days are forgotten."""
    held = []
    for place in places.taken:
        if place.split == "dev" and place.at.date() < at.date():
            continue
        standing = standing_of(place.id)
        if at - place.at < RESERVED_FOR if standing is None else _counts(standing):
            held.append(place)
    return tuple(held)


def _counts(standing: Standing) -> bool:
    summary = standing.summary
    if summary is None:
        return standing.cancelled is None
    # a failure that cost nothing was ours
    return summary.status in {"done", "rejected"} or summary.charged_hours > 0


def _now(index: Index, name: str) -> Standing | None:
    known = index.get(name)
    return known if known is not None and known.over else index.reread(name)


def _count(held: tuple[Place, ...], split: str, at: datetime) -> int:
    return sum(place.split == split and (split == "test" or place.at.date() == at.date()) for place in held)


def _key(person: Person, task: Task) -> str:
    return f"quotas/{person.name}/{task.id}.json"
