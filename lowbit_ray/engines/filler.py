"""A process that holds so much of a GPU that exactly `free_gib` stay free: the hard cap.

It needs no torch: `filler_child.py` speaks to the driver through ctypes, and ends with its parent, whatever
happens to that. The memory an engine's context takes comes out of what is left free, as the rules say.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lowbit_ray.errors import PodError

__all__ = ["Filler", "fillers_for"]

CHILD = Path(__file__).with_name("filler_child.py")
EXACT_GIB = 0.1
CONTEXT_GIB = 1.0
"""More than the filler's own context takes (half of it on an H200): so little of a GPU cannot be held exactly."""
START_S = 60.0


class Filler:
    """Holds one GPU's memory while the context is open.

    with Filler("GPU-…", free_gib=32.25): ...

    `command` runs the child; tests give one with another allocator.
    """

    def __init__(self, gpu: str, free_gib: float, *, command: Sequence[str] = ()) -> None:
        self._gpu = gpu
        self._free_gib = free_gib
        self._command = tuple(command) or (sys.executable, "-I", str(CHILD))
        self._child: subprocess.Popen[bytes] | None = None
        self.held_gib = 0.0
        """What it allocated."""
        self.left_gib = 0.0
        """What the driver says is free beside it."""

    def start(self) -> Self:
        """Fills the GPU.

        Raises PodError if it does not come up, or leaves more than 0.1 GiB more or less than asked.
        """
        self._child = subprocess.Popen(
            [*self._command, str(int(self._free_gib * 2**30))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(self._gpu),
        )
        try:
            self._read_report(self._child)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Gives the memory back; returns when the process is gone."""
        child = self._child
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            child.wait(2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def alive(self) -> bool:
        """Whether it still holds the memory; a run whose filler died was not capped."""
        return self._child is not None and self._child.poll() is None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _read_report(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        line = _read_line(child.stdout.fileno(), START_S)
        try:
            report = json.loads(line)
            held, left = report["held_bytes"] / 2**30, report["free_bytes"] / 2**30
        except (ValueError, KeyError, TypeError):
            found = line.decode(errors="replace").strip() or "nothing"
            raise PodError("the filler did not come up", where=f"GPU {self._gpu}", found=found) from None
        self.held_gib, self.left_gib = held, left
        if abs(left - self._free_gib) > EXACT_GIB:
            raise PodError(
                "the filler could not leave what was asked",
                where=f"GPU {self._gpu}",
                found=f"{left:.2f} GiB free beside {held:.2f} GiB held",
                expected=f"{self._free_gib:.2f} ± {EXACT_GIB} GiB",
                remedy="Look for other processes on the GPU.",
            )


def _environment(gpu: str) -> dict[str, str]:
    # The driver library is found by the loader's path; nothing else of the host matters to the child.
    inherited = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return inherited | {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _read_line(descriptor: int, timeout_s: float) -> bytes:
    """Bytes up to a line's end, or what came within the time."""
    deadline, line = time.monotonic() + timeout_s, b""
    while not line.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            break
        piece = os.read(descriptor, 4096)
        if not piece:
            break
        line += piece
    return line


def fillers_for(cap_gib: float, gpus: Mapping[str, float]) -> list[Filler]:
    """A filler for each GPU, not yet started, that leaves its even share of the cap; none where that is all of it.

    `gpus` are the pod's, by index or UUID, with the GiB of each. The peak of an engine that takes nearly the whole
    GPU has a cap beyond it, which the GPU itself holds.
    """
    share = cap_gib / max(len(gpus), 1)
    return [Filler(gpu, share) for gpu, total_gib in gpus.items() if share < total_gib - CONTEXT_GIB]
