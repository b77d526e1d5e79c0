"""Seconds in which a server was answering: at least one of our requests was sent and not yet answered wholly.

    with busy_seconds() as meter: ...   # whatever asks within it, in the same task or in tasks that it starts
    meter.seconds

What a pod costs is seconds held; this is the part of them in which the GPU had work of ours.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType

__all__ = ["BusyMeter", "answering", "busy_seconds"]


class BusyMeter:
    """Counts requests in flight and adds up the time while there are any; for one event loop."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._open = 0
        self._since = 0.0

    def __enter__(self) -> None:
        if self._open == 0:
            self._since = time.perf_counter()
        self._open += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open -= 1
        if self._open == 0:
            self.seconds += time.perf_counter() - self._since


_METER: ContextVar[BusyMeter | None] = ContextVar("busy_meter", default=None)
_UNMEASURED = contextlib.nullcontext()


@contextlib.contextmanager
def busy_seconds() -> Iterator[BusyMeter]:
    """A meter of the requests that are made within the block."""
    meter = BusyMeter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)


def answering() -> BusyMeter | contextlib.nullcontext[None]:
    """Around one request, from before it is sent until its answer is read."""
    return _METER.get() or _UNMEASURED
