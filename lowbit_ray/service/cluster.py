"""The evaluating half of `lowbit serve`: a Ray of this machine alone, and the dispatcher of its jobs.

Ends with SIGTERM, or when the process that started it is gone; Ray and all that runs on it end with it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator

from lowbit_ray.dispatch.dispatcher import Dispatcher, Status
from lowbit_ray.dispatch.jobs import RayJobs
from lowbit_ray.dispatch.order import Limits
from lowbit_ray.dispatch.tickets import Backoff
from lowbit_ray.errors import InfraError
from lowbit_ray.evaluate import abandon
from lowbit_ray.ledger import open_ledger
from lowbit_ray.service.head import local_head
from lowbit_ray.settings import Settings, settings
from lowbit_ray.tasks import list_tasks, load_task

__all__ = ["main", "news"]

log = logging.getLogger(__name__)

LOOK_S = 2.0


def main() -> int:
    """Dispatches until it is told to end."""
    parent, configured, ended = os.getppid(), settings(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with local_head(_cpus(configured)) as dashboard:
        dispatcher, said, before = _dispatcher(configured, dashboard), "", None
        while not ended.wait(LOOK_S) and os.getppid() == parent:
            try:
                status = dispatcher.look()
                for line in news(before, status):
                    log.info("%s", line)
                said, before = "", status
            except InfraError as error:
                if str(error) != said:
                    log.warning("%s: %s", type(error).__name__, error)
                said = str(error)
    return 0


def news(before: Status | None, now: Status) -> Iterator[str]:
    """What one look of the dispatcher has to tell that the look before had not, a line each."""
    yield from (f"started {name}" for name in now.started)
    for words, these, those in (
        ("waits after a fault of ours", now.delayed, before.delayed if before else {}),
        ("cannot be started", now.blocked, before.blocked if before else {}),
    ):
        yield from (f"{name} {words}: {why}" for name, why in these.items() if those.get(name) != why)
    yield from (f"given up {name}, free of charge" for name in now.given_up)
    worked = {*before.ahead, *before.on_pod, *before.started} if before else set[str]()
    left = {*now.ahead, *now.on_pod, *now.started, *now.queue, *now.delayed, *now.blocked, *now.given_up}
    yield from (f"ended {name}: lowbit show {name}" for name in sorted(worked - left))


def _dispatcher(configured: Settings, dashboard: str) -> Dispatcher:
    ledger = open_ledger(configured.ledger)
    return Dispatcher(
        ledger,
        RayJobs(dashboard, python=sys.executable),
        shape_of=lambda task: load_task(task, configured.tasks).pod,
        abandon=lambda name, reason: abandon(name, reason, ledger=ledger, settings=configured),
        limits=Limits(ahead=1),
        backoff=Backoff(),
    )


def _cpus(configured: Settings) -> int:
    """As many as the largest pod without a GPU asks for: they are shared where the machine has fewer."""
    shapes = (load_task(name, configured.tasks).pod for name in list_tasks(configured.tasks))
    return max((shape.cpus for shape in shapes if shape.tensor_parallel == 0), default=1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        sys.exit(main())
    except InfraError as error:
        sys.exit(f"{type(error).__name__}: {error}")
