"""The dispatcher's one look at everything; it keeps nothing in memory that the ledger does not hold.

Killed at any moment, or run twice at the same time, it starts no evaluation twice: a ticket is created or swapped
before a job is started, the job's name follows from it, and the evaluation itself holds a lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol

from lowbit_ray.dispatch import tickets
from lowbit_ray.dispatch.jobs import Job
from lowbit_ray.dispatch.order import AtWork, Limits, Waiting, in_order, last_served, to_start
from lowbit_ray.dispatch.tickets import Backoff, Held, Ticket
from lowbit_ray.engines.nodes import Node, pods_in
from lowbit_ray.errors import ConfigError
from lowbit_ray.index import Index, Standing
from lowbit_ray.lease import LeaseHeld, attempts
from lowbit_ray.ledger import Ledger
from lowbit_ray.rules import _Frozen
from lowbit_ray.standing import TERMINAL
from lowbit_ray.tasks import PodShape

__all__ = ["Dispatcher", "Jobs", "Status"]

Place = Literal["at work", "due", "later", "over"]


class Jobs(Protocol):
    """What starts drivers; jobs.RayJobs. All raise InfraError where it does not answer."""

    def start(self, submission: str, job: int, labels: dict[str, str]) -> None: ...

    def look(self, submission: str, job: int) -> Job | None: ...

    def stop(self, submission: str, job: int) -> None: ...

    def nodes(self) -> Sequence[Node]: ...


class Status(_Frozen):
    """What one look found and did."""

    at: datetime
    queue: tuple[str, ...]
    """Those that wait, the next one first."""
    ahead: tuple[str, ...]
    """At work and without a pod yet."""
    on_pod: tuple[str, ...]
    """At work, with a pod or done with it."""
    started: tuple[str, ...]
    """Started by this look."""
    delayed: dict[str, str]
    """Those that wait after a fault of ours, and what it was."""
    given_up: tuple[str, ...]
    """Recorded as failed by this look, free of charge."""
    blocked: dict[str, str]
    """Those that cannot be started: their task is unknown here, or their objects are of another version."""


@dataclass(slots=True)
class _Look:
    """What one look gathers."""

    at: datetime
    held: dict[str, Held]
    places: dict[str, Place] = field(default_factory=dict)
    delayed: dict[str, str] = field(default_factory=dict)
    given_up: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)


class Dispatcher:
    """Looks at the ledger and at Ray, and does what follows.

    shape_of: the pod of a task, ConfigError where there is no such task. abandon: records a submission as failed
    for the reason given, free of charge.
    """

    def __init__(
        self,
        ledger: Ledger,
        jobs: Jobs,
        *,
        shape_of: Callable[[str], PodShape],
        abandon: Callable[[str, str], object],
        limits: Limits,
        backoff: Backoff,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._shape_of = shape_of
        self._abandon = abandon
        self._limits = limits
        self._backoff = backoff
        self._index = Index(ledger)

    def look(self) -> Status:
        """Settles what has ended, stops what was cancelled, starts what is next.

        InfraError where the ledger or Ray does not answer: look again later, nothing is lost.
        """
        self._index.refresh()
        blocked: dict[str, str] = {}
        held = tickets.read_all(self._ledger, blocked)
        seen = _Look(datetime.now(UTC), held, places=dict.fromkeys(blocked, "later"), blocked=blocked)
        for name, each in held.items():
            seen.places[name] = self._settle(name, each, seen)
        running = self._at_work(seen)
        queue = in_order(self._waiting(seen), running, last_served(self._index.standings.values()))
        shapes = self._shapes([*queue, *running], seen)
        nodes = self._jobs.nodes() if queue else ()
        chosen = to_start(queue, running, shapes, self._limits, lambda shape: pods_in(shape, nodes))
        started = [entry.id for entry in chosen if self._start(entry.id, held)]
        return Status(
            at=seen.at,
            queue=tuple(entry.id for entry in queue if entry.id not in started),
            ahead=tuple(work.id for work in running if work.ahead) + tuple(started),
            on_pod=tuple(work.id for work in running if not work.ahead),
            started=tuple(started),
            delayed=seen.delayed,
            given_up=tuple(seen.given_up),
            blocked=seen.blocked | self._index.unreadable,
        )

    def verdicts(self) -> dict[str, int]:
        """How many submissions have ended how, as of the last look."""
        counts: Counter[str] = Counter(each.state.status for each in self._index.standings.values())
        return {status: counts[status] for status in sorted(TERMINAL)}

    def _settle(self, name: str, held: Held, seen: _Look) -> Place:
        """Where a submission with a ticket stands, after what follows from how its job is."""
        ticket, standing = held.ticket, self._index.get(name)
        if standing is None or name in self._index.unreadable:
            return "later"
        if standing.summary is not None:
            tickets.withdraw(self._ledger, name, held)
            return "over"
        if standing.cancelled is not None:
            return self._stop(name, held)
        if ticket.due_at is not None:
            if ticket.due_at > seen.at:
                seen.delayed[name] = (
                    f"{ticket.reason}; fault {ticket.faults}, again at {ticket.due_at:%H:%M:%S}"
                )
                return "later"
            return "at work" if _leased(standing, seen.at) else "due"
        job = self._jobs.look(name, ticket.job)
        if job is None and not _leased(standing, seen.at):
            self._jobs.start(name, ticket.job, _labels(standing))  # never begun, or lost with its head
        if job is None or job.status == "active":
            return "at work"
        return self._ended(name, held, job, seen)

    def _ended(self, name: str, held: Held, job: Job, seen: _Look) -> Place:
        standing = self._index.reread(name)  # the index may be older than the job's end
        if standing is None or standing.summary is not None or standing.cancelled is not None:
            tickets.withdraw(self._ledger, name, held)
            return "over"
        if _leased(standing, seen.at):
            return "at work"  # by somebody else, or by one that died: its lease expires
        if job.busy:
            after = held.ticket.ended(seen.at, self._backoff.busy_s, job.message, fault=False)
            tickets.replace(self._ledger, name, held, after)
            return "later"
        reason = self._reason(name, job)
        faults = held.ticket.faults + 1
        if faults >= self._backoff.faults and self._alone(name, held, seen):
            return self._give_up(
                name, held, f"given up after {faults} faults of ours, free of charge: {reason}", seen
            )
        after = held.ticket.ended(seen.at, self._backoff.delay_s(faults), reason, fault=True)
        if tickets.replace(self._ledger, name, held, after):
            seen.delayed[name] = reason
        return "later"

    def _alone(self, name: str, held: Held, seen: _Look) -> bool:
        """Whether only this submission fails: others that fail as well, while none ends, say that the cluster is ill.

        Then nothing is given up, or an illness of an hour would end the whole queue.
        """
        since = held.ticket.failing_since or seen.at
        if not any(one.ticket.faults for other, one in seen.held.items() if other != name):
            return True
        ended = (s.lease for s in self._index.standings.values() if s.summary is not None)
        return any(lease is not None and lease.renewed_at > since for lease in ended)

    def _give_up(self, name: str, held: Held, reason: str, seen: _Look) -> Place:
        try:
            self._abandon(name, reason)
        except LeaseHeld:
            return "at work"  # another dispatcher gives it up, or somebody evaluates it by hand
        except ConfigError as error:
            seen.blocked[name] = str(error)
            return "later"
        tickets.withdraw(self._ledger, name, held)
        seen.given_up.append(name)
        return "over"

    def _reason(self, name: str, job: Job) -> str:
        """What the last attempt said of itself, and how its job ended where it could say nothing."""
        past = attempts(self._ledger, name)
        return past[-1].reason if past and past[-1].reason else job.message

    def _stop(self, name: str, held: Held) -> Place:
        if held.ticket.due_at is None:
            job = self._jobs.look(name, held.ticket.job)
            if job is not None and job.status == "active":
                self._jobs.stop(name, held.ticket.job)
                return "at work"
        tickets.withdraw(self._ledger, name, held)
        return "over"

    def _start(self, name: str, held: dict[str, Held]) -> bool:
        at = datetime.now(UTC)
        standing = self._index.get(name)
        if name in held:
            ticket: Ticket = held[name].ticket.again(at)
            ours = tickets.replace(self._ledger, name, held[name], ticket)
        else:
            ticket = tickets.first(at)
            ours = tickets.issue(self._ledger, name, ticket)
        if ours and standing is not None:
            self._jobs.start(name, ticket.job, _labels(standing))
        return ours

    def _at_work(self, seen: _Look) -> list[AtWork]:
        """Those with a job at work, and those that somebody evaluates without one."""
        found = []
        for standing in self._index.standings.values():
            leased = standing.state.status == "running" and _leased(standing, seen.at)
            if seen.places.get(standing.id) == "at work" or (leased and standing.id not in seen.places):
                ahead = not leased or standing.lease is None or standing.lease.pod == "before"
                found.append(AtWork.of(standing, ahead=ahead))
        return found

    def _waiting(self, seen: _Look) -> list[Waiting]:
        """Those that may be started now."""
        return [
            Waiting.of(s)
            for s in self._index.standings.values()
            if s.state.status in ("waiting", "running")
            and not _leased(s, seen.at)
            and seen.places.get(s.id, "due") == "due"
            and s.id not in self._index.unreadable
        ]

    def _shapes(self, entries: list[Waiting | AtWork], seen: _Look) -> dict[str, PodShape]:
        shapes: dict[str, PodShape] = {}
        for entry in entries:
            standing = self._index.get(entry.id)
            try:
                if standing is not None:
                    shapes[entry.id] = self._shape_of(standing.submission.task_id)
            except ConfigError as error:
                seen.blocked[entry.id] = str(error)
        return shapes


def _leased(standing: Standing, at: datetime) -> bool:
    return standing.lease is not None and standing.lease.held(at)


def _labels(standing: Standing) -> dict[str, str]:
    """What Ray's job list shows beside the name."""
    submission = standing.submission
    return {"participant": submission.participant, "task": submission.task_id, "split": submission.split}
