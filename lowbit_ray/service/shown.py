"""Reading what is shown of one submission, with memory in front of the ledger."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from lowbit_ray.dispatch.order import positions
from lowbit_ray.index import Standing
from lowbit_ray.people import Person
from lowbit_ray.progress import Progress, read_progress
from lowbit_ray.records import Record, parse_record
from lowbit_ray.service.desk import Desk
from lowbit_ray.service.problems import Refusal
from lowbit_ray.service.versioned import Versioned
from lowbit_ray.service.views import finished_json, unfinished
from lowbit_ray.service.who import may_see

__all__ = ["find", "position", "progress", "record_of", "shown", "steps"]

T = TypeVar("T")


class Memory(Generic[T]):
    """The values used last, each for a limited time."""

    def __init__(self, most: int, fresh_s: float) -> None:
        self._most = most
        self._fresh_s = fresh_s
        self._kept: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    async def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """The value of `key`, read in a thread where it is not fresh."""
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() - kept[0] < self._fresh_s:
            self._kept.move_to_end(key)
            return kept[1]
        value = await run_in_threadpool(read)
        self._kept[key] = (time.monotonic(), value)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return value


RECORDS: Memory[Versioned] = Memory(most=512, fresh_s=600.0)
PARSED: Memory[Record] = Memory(most=64, fresh_s=600.0)
STEPS: Memory[tuple[str, ...]] = Memory(most=512, fresh_s=1.0)
PROGRESS: Memory[Progress | None] = Memory(most=512, fresh_s=1.0)


async def find(desk: Desk, name: str, person: Person | None) -> Standing:
    """A submission that somebody may see; 404 for any other, so that nobody learns which ids exist."""
    standing = desk.index.get(name)
    if standing is None:  # accepted a moment ago, by another replica perhaps
        standing = await run_in_threadpool(desk.index.reread, name)
    one = standing.submission if standing else None
    if standing is None or one is None or not may_see(person, one.participant, one.split):
        raise Refusal(404, "No such submission", field="id")
    return standing


def position(desk: Desk, name: str) -> int | None:
    """The place in the queue, from 1; None where it does not wait."""
    places = desk.per_change("positions", lambda: positions(list(desk.index.standings.values())))
    return places.get(name)


async def progress(desk: Desk, standing: Standing) -> Progress | None:
    """How far a running evaluation is; None where it has not said."""
    if standing.state.status != "running":
        return None
    return await PROGRESS.get((id(desk), standing.id), lambda: read_progress(desk.ledger, standing.id))


async def steps(desk: Desk, standing: Standing) -> tuple[str, ...]:
    """Names of the steps that are done."""
    key = (id(desk), standing.id, standing.over)
    return await STEPS.get(key, lambda: _read_steps(desk, standing.id))


async def shown(desk: Desk, standing: Standing) -> Versioned:
    """A submission as JSON: its record where there is one, with the keys of a record before."""
    if standing.summary is None:
        view: BaseModel = unfinished(standing, position(desk, standing.id), await progress(desk, standing))
        return Versioned.of(view.model_dump_json())
    key = (id(desk), standing.id, standing.flag)
    return await RECORDS.get(
        key, lambda: Versioned.of(finished_json(_record_bytes(desk, standing.id), standing.flag))
    )


async def record_of(desk: Desk, standing: Standing) -> Record:
    """The record of a finished submission, parsed."""
    key = (id(desk), standing.id)
    return await PARSED.get(key, lambda: parse_record(_record_bytes(desk, standing.id)))


def _record_bytes(desk: Desk, name: str) -> bytes:
    entry = desk.ledger.read(f"submissions/{name}/record.json")
    if entry is None:
        raise Refusal(404, "No such record", field="id")
    return entry.data


def _read_steps(desk: Desk, name: str) -> tuple[str, ...]:
    prefix = f"submissions/{name}/stages/"
    return tuple(key.removeprefix(prefix).removesuffix(".json") for key in desk.ledger.keys(prefix))
