"""What every route is given: the ledger, the index that follows it, the rules, the tasks, the people."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from lowbit_ray.errors import LedgerError
from lowbit_ray.index import Index
from lowbit_ray.ledger import Ledger
from lowbit_ray.rules import Rules, load_rules
from lowbit_ray.service.limits import Buckets, Limits
from lowbit_ray.service.roster import Roster
from lowbit_ray.settings import Settings
from lowbit_ray.tasks import Task, list_tasks, load_task

__all__ = ["Desk", "TheDesk", "following", "open_desk", "the_desk"]

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Desk:
    """One service process."""

    ledger: Ledger
    settings: Settings
    limits: Limits
    rules: Rules
    tasks: Mapping[str, Task]
    index: Index
    roster: Roster
    reads: Buckets
    writes: Buckets
    wrong_tokens: Buckets
    started: float = field(default_factory=time.monotonic)
    behind: str | None = None
    """Why the index could not follow the ledger at its last try; None where it could."""
    _kept: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def per_verdict(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made again only after a verdict or a flag: for whatever a board shows."""
        return self._once(name, self.index.verdicts, make)

    def per_change(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made again only after something in the index has changed."""
        return self._once(name, self.index.generation, make)

    def _once(self, name: str, generation: int, make: Callable[[], T]) -> T:
        kept = self._kept.get(name)
        if kept is None or kept[0] != generation:
            if len(self._kept) > 500:
                self._kept.clear()
            kept = self._kept[name] = (generation, make())
        value: T = kept[1]
        return value

    async def follow(self, every_s: float) -> None:
        """Keeps the index up with the ledger until it is cancelled; goes on while the store is away."""
        while True:
            try:
                await run_in_threadpool(self.index.refresh)
                self.behind = None
            except LedgerError as error:
                if self.behind is None:
                    log.error("the index cannot follow the ledger: %s", error)
                self.behind = str(error)
            except Exception as error:  # whatever a broken object causes must not stop the index for ever
                log.exception("the index stumbled")
                self.behind = f"{type(error).__name__}: {error}"
            await asyncio.sleep(every_s)


def open_desk(ledger: Ledger, settings: Settings, limits: Limits) -> Desk:
    """Reads rules and tasks; ConfigError where a file is wrong."""
    return Desk(
        ledger=ledger,
        settings=settings,
        limits=limits,
        rules=load_rules(settings.rules),
        tasks={name: load_task(name, settings.tasks) for name in list_tasks(settings.tasks)},
        index=Index(ledger),
        roster=Roster(ledger),
        reads=Buckets(limits.reads),
        writes=Buckets(limits.writes),
        wrong_tokens=Buckets(limits.wrong_tokens),
    )


@contextlib.asynccontextmanager
async def following(desk: Desk, every_s: float) -> AsyncIterator[None]:
    """Follows the ledger for as long as the block lasts."""
    task = asyncio.create_task(desk.follow(every_s))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def the_desk(request: Request) -> Desk:
    """The desk of this process."""
    desk: Desk = request.app.state.desk
    return desk


TheDesk = Annotated[Desk, Depends(the_desk)]
