"""What the jobs that measure have in common: their log, Ray's signal to stop, their exit codes."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from typing import TypeVar

from lowbit_ray.errors import LowbitError, NoPodError
from lowbit_ray.evaluate import BUSY
from lowbit_ray.lease import LeaseHeld
from lowbit_ray.progress import Watch
from lowbit_ray.report.log import Form, told
from lowbit_ray.settings import settings

__all__ = ["add_log_option", "carry_out"]

T = TypeVar("T")


def add_log_option(parser: argparse.ArgumentParser) -> None:
    """`--log text` for people, `--log json` for whatever collects logs."""
    parser.add_argument(
        "--log", choices=("text", "json"), default=settings().log, help="form of standard error (LOWBIT_LOG)"
    )


def carry_out(log: Form, subject: str, work: Callable[[Watch], T], show: Callable[[T], object]) -> int:
    """Does the work and shows what came of it; the exit code.

    0: done. 75: it could not begin, and by no fault (somebody else is at it, or there was no pod). 1: an error,
    which has been said on standard error.
    """
    # Ray stops a job with it; as an exception it lets the pod go and the lease say how it ended
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with told(log, subject) as watch:
            result = work(watch)
    except LowbitError as error:
        if log == "text":
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return BUSY if isinstance(error, LeaseHeld | NoPodError) else 1
    show(result)
    return 0
