"""Keeps the cluster busy: `ray job submit --no-wait -- python -m jobs.dispatch`.

Takes the waiting submissions of the ledger in order, starts one Ray job each, watches them, and starts those again
that ended by a fault of ours. It may be killed at any moment, and two of it do no harm.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable

from lowbit_ray.dispatch.dispatcher import Dispatcher, Status
from lowbit_ray.dispatch.jobs import RayJobs
from lowbit_ray.dispatch.order import Limits
from lowbit_ray.dispatch.tickets import Backoff
from lowbit_ray.errors import InfraError
from lowbit_ray.evaluate import abandon
from lowbit_ray.ledger import open_ledger
from lowbit_ray.metrics import set_queue, set_verdicts
from lowbit_ray.patience import open_patiently
from lowbit_ray.session import join_own_job
from lowbit_ray.settings import settings
from lowbit_ray.tasks import load_task

MOST_WAIT_S = 60.0
"""Between looks while the ledger or Ray does not answer."""
FORGET_S = 3600.0
"""Between two times at which jobs that ended long ago are taken off Ray's list."""


def main() -> int:
    """Parses the command line and looks until it is told to end; 1 where `--once` could not look."""
    options = _parser().parse_args()
    configured = settings()
    ledger = (open_ledger if options.once else open_patiently)(configured.ledger)
    jobs = RayJobs(options.address, python=options.python)
    dispatcher = Dispatcher(
        ledger,
        jobs,
        shape_of=lambda task: load_task(task, configured.tasks).pod,
        abandon=lambda name, reason: abandon(name, reason, ledger=ledger, settings=configured),
        limits=Limits(ahead=options.ahead, most=options.most),
        backoff=Backoff(first_s=options.retry_s, busy_s=options.retry_s, faults=options.faults),
    )
    told: Callable[[Status], str] = _json if options.json else _lines
    publishes = join_own_job()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    told = _publishing(dispatcher, told) if publishes else told
    return _run(dispatcher, told, jobs.forget, ended, options)


def _publishing(dispatcher: Dispatcher, told: Callable[[Status], str]) -> Callable[[Status], str]:
    """Tells Prometheus as well, by Ray."""

    def tell(status: Status) -> str:
        set_queue(len(status.queue) + len(status.delayed), len(status.ahead) + len(status.on_pod))
        set_verdicts(dispatcher.verdicts())
        return told(status)

    return tell


def _run(
    dispatcher: Dispatcher,
    told: Callable[[Status], str],
    forget: Callable[[], int],
    ended: threading.Event,
    options: argparse.Namespace,
) -> int:
    last, wait_s, forgot_at = "", options.every, -FORGET_S
    while not ended.is_set():
        try:
            text = told(dispatcher.look())
            wait_s = options.every
            if text != last:
                print(text, flush=True)  # noqa: T201  # a command's output
            last = text
            if time.monotonic() - forgot_at > FORGET_S:
                forgot_at = time.monotonic()
                forget()
        except InfraError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            if options.once:
                return 1
            wait_s = min(MOST_WAIT_S, 2 * wait_s)
        if options.once:
            break
        ended.wait(wait_s)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.dispatch",
        description="Start a Ray job for each waiting submission of the ledger (LOWBIT_LEDGER), in order.",
        epilog="Example: ray job submit --no-wait -- python -m jobs.dispatch --ahead 8",
    )
    limits, backoff = Limits(), Backoff()
    parser.add_argument("--once", action="store_true", help="look once, say what was found and done, and end")
    parser.add_argument(
        "--json",
        action="store_true",
        default=settings().log == "json",
        help="one JSON object a look that found something new; so with LOWBIT_LOG=json",
    )
    parser.add_argument("--every", type=float, default=2.0, metavar="S", help="seconds between looks (2)")
    parser.add_argument(
        "--ahead",
        type=int,
        default=limits.ahead,
        metavar="N",
        help="drivers that get ready while all pods are busy",
    )
    parser.add_argument("--most", type=int, default=limits.most, metavar="N", help="drivers in all")
    parser.add_argument(
        "--retry-s",
        type=float,
        default=backoff.first_s,
        metavar="S",
        help="seconds to wait after a first fault of ours, or after a driver that could not begin",
    )
    parser.add_argument(
        "--faults",
        type=int,
        default=backoff.faults,
        metavar="N",
        help="faults of ours after which it gives up",
    )
    parser.add_argument("--python", default="python", help="what runs the drivers on the head (python)")
    parser.add_argument("--address", help="the dashboard, http://head:8265; by default that of this cluster")
    return parser


def _json(status: Status) -> str:
    return status.model_dump_json(exclude={"at"})


def _lines(status: Status) -> str:
    lines = [f"{len(status.queue)} waiting, {len(status.ahead)} getting ready, {len(status.on_pod)} on a pod"]
    lines += [f"started {name}" for name in status.started]
    lines += [f"delayed {name}: {reason}" for name, reason in status.delayed.items()]
    lines += [f"given up {name}" for name in status.given_up]
    lines += [f"cannot start {name}: {reason}" for name, reason in status.blocked.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
