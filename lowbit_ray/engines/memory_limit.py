"""A hard limit on the host memory of an engine: on a CPU the twin of the filler that holds a GPU's memory.

Where this host lets us make a control group, the kernel ends a process of the engine the moment that the whole tree
would go beyond; what files it has read do not count, as they can be given up. Elsewhere the tree's resident memory is
looked at every second and the engine is ended by us: a peak shorter than that goes unseen. The limits of a process
(RLIMIT_AS, RLIMIT_DATA) are of no use here: they count what is reserved, and engines reserve far more than they touch.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Literal

from lowbit_ray.engines.cgroup import ControlGroup

__all__ = ["HeldBy", "MemoryLimit"]

HeldBy = Literal["filler", "cgroup", "watched"]
"""What keeps an engine within its cap: a process that holds the rest of a GPU, the kernel, or we."""

GIB = 2**30
INTERVAL_S = 1.0
PROCESSES = 2**22
"""As many as Linux can number: the group is for memory."""


class MemoryLimit:
    """Keeps one engine within `limit_gib`, from `start` to `stop`.

    held_gib  memory of its whole tree now, or its peak so far
    end       ends it
    group     tests give one; by default it is made
    """

    remedy = "It needs more memory than its peak showed: see the hard cap in the rules."

    def __init__(
        self,
        limit_gib: float,
        *,
        held_gib: Callable[[], float],
        end: Callable[[], None],
        group: ControlGroup | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.limit_gib = limit_gib
        self._held_gib = held_gib
        self._end = end
        self._interval_s = interval_s
        self.held_by: HeldBy = "watched"
        """Who keeps the limit here."""
        self._group = group or ControlGroup.make(
            f"lowbit-cap-{uuid.uuid4().hex[:12]}", memory_bytes=int(limit_gib * GIB), processes=PROCESSES
        )
        if "memory" in self._group.folders:
            self.held_by = "cgroup"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-limit", daemon=True)
        self._breach = ""

    def options(self) -> list[str]:
        """For the supervisor: the engine's first process becomes a member before it is the engine."""
        return [f"group={path}" for path in self._group.members]

    def start(self) -> None:
        """Begins to watch, where no kernel does."""
        if self.held_by == "watched":
            self._thread.start()

    def excess(self) -> str:
        """How it went beyond the limit, in words; empty where it did not."""
        if not self._breach and self._group.ran_out_of_memory():
            self._breach = (
                f"it took more than the {self.limit_gib:.3f} GiB of host memory that its cap leaves it"
            )
        return self._breach

    def stop(self) -> None:
        """Ends the watching."""
        self._done.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        """Gives the group back, after its last process has ended."""
        self.excess()  # the kernel's count goes with it
        self._group.close()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            held = self._held_gib()
            if held > self.limit_gib:
                self._breach = (
                    f"it held {held:.3f} GiB of host memory, and its cap leaves it {self.limit_gib:.3f} GiB"
                )
                self._end()
                return
