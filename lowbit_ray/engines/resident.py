"""Resident memory of a tree of processes, its peak kept by a thread: the CPU's device peak."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psutil

__all__ = ["ResidentPeak", "resident_gib"]

GIB = 2**30


def resident_gib(processes: list[psutil.Process]) -> float:
    """GiB held by the processes together; pages that several share are counted once (PSS).

    Where the kernel gives no PSS, resident minus shared pages are summed instead.
    """
    total = 0
    for process in processes:
        try:
            total += _proportional(process.pid)
        except OSError:
            try:
                memory = process.memory_info()
            except psutil.Error:
                continue  # it has ended
            total += memory.rss - memory.shared
    return total / GIB


def _proportional(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123 - read twice a second
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    raise OSError("no Pss line")


class ResidentPeak:
    """Samples a tree's memory until it is stopped."""

    def __init__(self, tree: Callable[[], list[psutil.Process]], interval_s: float) -> None:
        self._tree = tree
        self._interval_s = interval_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resident-peak", daemon=True)
        self.peak_gib = 0.0
        self.seen: set[psutil.Process] = set()
        """Every process that was ever seen in the tree."""

    def start(self) -> None:
        self._thread.start()

    def sample(self) -> float:
        """GiB now; also called by the thread."""
        processes = self._tree()
        self.seen.update(processes)
        now = resident_gib(processes)
        self.peak_gib = max(self.peak_gib, now)
        return now

    def reset(self) -> None:
        """Forgets the peak, as a new workload begins."""
        self.peak_gib = 0.0

    def stop(self) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            self.sample()
