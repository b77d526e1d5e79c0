"""Who is next, and how many may be started: pure functions of who waits and who is at work.

Scored submissions come before dev ones. Within a class the next is the participant's with the fewest evaluations
at work, then the one that was served longest ago; of one participant's the oldest.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lowbit_ray.index import Standing
from lowbit_ray.tasks import PodShape

__all__ = [
    "AtWork",
    "Limits",
    "Waiting",
    "at_work",
    "in_order",
    "last_served",
    "positions",
    "to_start",
    "waiting",
]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A submission that nobody evaluates."""

    id: str
    participant: str
    scored: bool
    arrival: str
    """Sorts by the time of acceptance."""

    @staticmethod
    def of(standing: Standing) -> Waiting:
        """A submission's place in the queue follows from these."""
        submission = standing.submission
        return Waiting(standing.id, submission.participant, submission.split == "test", standing.arrival)


@dataclass(frozen=True, slots=True)
class AtWork:
    """A submission whose driver runs."""

    id: str
    participant: str
    scored: bool
    ahead: bool
    """Whether it has yet to get its pod."""

    @staticmethod
    def of(standing: Standing, *, ahead: bool) -> AtWork:
        """A driver's place among the others follows from these."""
        submission = standing.submission
        return AtWork(standing.id, submission.participant, submission.split == "test", ahead)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many drivers run at a time."""

    ahead: int = 4
    """Drivers of one shape of pod that fetch, check and wait for a pod, beside those for which one is free. Those of
    dev submissions keep no scored one from starting: it gets the next pod."""
    share: float = 0.25
    """As many as this share of those that hold such a pod, where that is more."""
    most: int = 256
    """Drivers in all: each is a process on the head."""


def waiting(standings: Iterable[Standing]) -> list[Waiting]:
    """Those of them that wait."""
    return [Waiting.of(s) for s in standings if s.state.status == "waiting"]


def at_work(standings: Iterable[Standing]) -> list[AtWork]:
    """Those of them that are evaluated."""
    return [
        AtWork.of(s, ahead=s.lease is None or s.lease.pod == "before")
        for s in standings
        if s.state.status == "running"
    ]


def last_served(standings: Iterable[Standing]) -> dict[str, str]:
    """When each participant's evaluations were last at work, ISO 8601 in UTC; absent where never."""
    served: dict[str, str] = {}
    for standing in standings:
        if standing.lease is not None:
            at = standing.lease.renewed_at.isoformat()
            name = standing.submission.participant
            served[name] = max(served.get(name, ""), at)
    return served


def in_order(queue: Iterable[Waiting], running: Iterable[AtWork], served: Mapping[str, str]) -> list[Waiting]:
    """The queue in the order in which its members are started.

    served: when a participant was last at work, any text that sorts by time. Each one that is placed counts as one
    more at work for its participant, and as served last.
    """
    ordered: list[Waiting] = []
    busy = Counter(work.participant for work in running)
    turn: dict[str, tuple[int, str]] = {name: (0, at) for name, at in served.items()}
    queue = list(queue)
    for scored in (True, False):
        own: dict[str, deque[Waiting]] = defaultdict(deque)
        for entry in sorted((e for e in queue if e.scored is scored), key=lambda e: e.arrival):
            own[entry.participant].append(entry)

        def place(
            name: str, own: Mapping[str, deque[Waiting]] = own
        ) -> tuple[int, tuple[int, str], str, str]:
            return busy[name], turn.get(name, (0, "")), own[name][0].arrival, name

        heap = [place(name) for name in own]
        heapq.heapify(heap)
        while heap:
            *_, name = heapq.heappop(heap)
            ordered.append(own[name].popleft())
            busy[name] += 1
            turn[name] = (len(ordered), "")
            if own[name]:
                heapq.heappush(heap, place(name))
    return ordered


def positions(standings: Sequence[Standing]) -> dict[str, int]:
    """The place in the queue of each submission that waits, from 1."""
    ordered = in_order(waiting(standings), at_work(standings), last_served(standings))
    return {entry.id: place for place, entry in enumerate(ordered, start=1)}


def to_start(
    ordered: Iterable[Waiting],
    running: Iterable[AtWork],
    shapes: Mapping[str, PodShape],
    limits: Limits,
    pods: Callable[[PodShape], int],
) -> list[Waiting]:
    """Those to start now, so that the next pods find somebody ready and no more drivers run than that takes.

    shapes: the pod of every submission named; one that is missing there is not started. pods: how many of a shape
    the cluster holds at present, 0 where that is not known.
    """
    running = list(running)
    known = [work for work in running if work.id in shapes]
    ahead = Counter((shapes[work.id], work.scored) for work in known if work.ahead)
    on_pod = Counter(shapes[work.id] for work in known if not work.ahead)
    room = limits.most - len(running)
    chosen: list[Waiting] = []
    for entry in ordered:
        if len(chosen) >= room:
            break
        shape = shapes.get(entry.id)
        if shape is None:
            continue
        free = max(0, pods(shape) - on_pod[shape])
        before = ahead[shape, True] + (0 if entry.scored else ahead[shape, False])
        if before < free + max(limits.ahead, math.ceil(on_pod[shape] * limits.share)):
            ahead[shape, entry.scored] += 1
            chosen.append(entry)
    return chosen
