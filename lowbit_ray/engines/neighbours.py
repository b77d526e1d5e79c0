"""How much of the host's CPUs others used while an engine was timed: a busy host makes speeds that mean nothing.

    with NeighbourWatch(engine.tree) as watch: ...
    watch.share

share = (busy CPU time of the host − that of the engine's tree and of this process) / (elapsed time · CPUs). On a
GPU host some of it is harmless; on a CPU pod it is taken from the very cores that are measured.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import psutil

__all__ = ["NeighbourWatch"]


class NeighbourWatch:
    """Reads the counters at the beginning and at the end of the block."""

    def __init__(self, tree: Callable[[], list[psutil.Process]]) -> None:
        self._tree = tree
        self._before = (0.0, 0.0, 0.0)
        self.share = 0.0
        """Of all CPUs, 0 to 1; known after the block."""

    def __enter__(self) -> Self:
        self._before = self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        elapsed, host, own = (now - then for now, then in zip(self._read(), self._before, strict=True))
        capacity = max(elapsed, 1e-9) * (os.cpu_count() or 1)
        self.share = min(1.0, max(0.0, (host - own) / capacity))

    def _read(self) -> tuple[float, float, float]:
        """Seconds: the clock's, the host's CPUs', and those of the engine and of this process."""
        times = psutil.cpu_times()
        host = sum(times) - times.idle - getattr(times, "iowait", 0.0)
        # guest time is counted in user time as well
        host -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        own = 0.0
        for process in [*self._tree(), psutil.Process()]:
            with contextlib.suppress(psutil.Error):  # it has ended
                spent = process.cpu_times()
                own += spent.user + spent.system
        return time.monotonic(), host, own
