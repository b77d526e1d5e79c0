"""Limits that no kernel keeps for us: what an engine's cache and log hold on disk, and its memory without a cgroup.

A thread looks every second and ends the engine at the first that is exceeded; the reason is kept for the verdict.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from lowbit_ray.engines.cgroup import ControlGroup
from lowbit_ray.engines.isolation import Enclosure
from lowbit_ray.engines.memory_limit import HeldBy

__all__ = ["Quota", "folder_bytes"]

GIB = 2**30
LOG_BYTES = 2**28
"""A log is read whole for the engine's accounts."""
MOST_ENTRIES = 200_000
INTERVAL_S = 1.0


def folder_bytes(folder: Path) -> tuple[int, int]:
    """Bytes that the files below `folder` take on the disk, and how many entries there are; links are not followed."""
    total = entries = 0
    for _, folders, names, descriptor in os.fwalk(folder, follow_symlinks=False, onerror=None):
        entries += len(folders) + len(names)
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks * 512
        if entries > MOST_ENTRIES:
            break
    return total, entries


class Quota:
    """Watches one engine until it is stopped."""

    remedy = "Stay within the limits of docs/engine-track.md."

    def __init__(
        self,
        limits: Enclosure,
        *,
        log: Path,
        held_gib: Callable[[], float],
        group: ControlGroup | None,
        end: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._log = log
        self._held_gib = held_gib
        self._group = group if group is not None and "memory" in group.folders else None
        self._end = end
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="quota", daemon=True)
        self.breach = ""
        """Which limit was exceeded, in words; empty while none is."""

    @property
    def held_by(self) -> HeldBy:
        """Who keeps its memory within the limit."""
        return "cgroup" if self._group is not None else "watched"

    def options(self) -> list[str]:
        """For the supervisor: none, the sandbox brings its own."""
        return []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        """The sandbox takes its control group with it."""

    def excess(self) -> str:
        """The limit that it was ended for, by us or by the kernel; empty for none."""
        if not self.breach and self._group is not None and self._group.ran_out_of_memory():
            self.breach = f"it took more host memory than its limit of {self._limits.memory_gib:g} GiB"
        return self.breach

    def look(self) -> str:
        """The limit that is exceeded now, empty for none."""
        limits = self._limits
        if self._group is None and (held := self._held_gib()) > limits.memory_gib:
            return f"it holds {held:.2f} GiB of host memory, its limit is {limits.memory_gib:g} GiB"
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > LOG_BYTES:
                return f"it has printed more than {LOG_BYTES // 2**20} MiB"
        used, entries = folder_bytes(limits.cache_dir)
        if entries > MOST_ENTRIES:
            return f"its cache folder holds more than {MOST_ENTRIES} files"
        if used > limits.cache_gib * GIB:
            return f"its cache folder holds {used / GIB:.2f} GiB, its limit is {limits.cache_gib:g} GiB"
        return ""

    def _run(self) -> None:
        while not self._done.wait(INTERVAL_S):
            with contextlib.suppress(OSError):  # a folder that goes away while it is read
                self.breach = self.look()
            if self.breach:
                self._end()
                return
