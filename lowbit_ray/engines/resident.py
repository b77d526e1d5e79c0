"""Resident memory of a tree of processes, its peak kept by a thread: the CPU's device peak."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import psutil

__all__ = ["ResidentPeak", "resident_gib"]

GIB = 2**30
GROWTH = 1.005
"""The exact count takes the kernel some 15 ms a GiB, with the process's memory map locked: it is asked only
when the cheap one has grown by this factor, so that a server under load is left alone."""


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
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise OSError("no Pss line")


def _with_shared_gib(processes: list[psutil.Process]) -> float:
    """The cheap count: shared pages as often as they are shared."""
    total = 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue  # it has ended
    return total / GIB


class ResidentPeak:
    """Samples a tree's memory until it is stopped."""

    def __init__(self, tree: Callable[[], list[psutil.Process]], interval_s: float) -> None:
        self._tree = tree
        self._interval_s = interval_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resident-peak", daemon=True)
        self._cheap_gib = 0.0
        self.peak_gib = 0.0
        self.seen: set[psutil.Process] = set()
        """Every process that was ever seen in the tree."""

    def start(self) -> None:
        self._thread.start()

    def sample(self) -> None:
        """Looks once; the thread does so all the time."""
        processes = self._tree()
        self.seen.update(processes)
        cheap = _with_shared_gib(processes)
        if cheap > self._cheap_gib * GROWTH:
            self._cheap_gib = cheap
            self.peak_gib = max(self.peak_gib, resident_gib(processes))

    def held_gib(self) -> float:
        """The peak so far."""
        return self.peak_gib

    def reset(self) -> None:
        """Forgets the peak, as a new workload begins."""
        self.peak_gib = self._cheap_gib = 0.0

    def stop(self) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            self.sample()
