"""Who belongs to an engine, and what is left of it after its supervisor has ended: found, killed, waited for."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil

from lowbit_ray.errors import DirtyDeviceError

__all__ = ["descendants", "end_survivors"]

POLL_S = 0.1
LOOKS = 50


def descendants(pid: int | None) -> list[psutil.Process]:
    """The processes below one, alive; none where that one is gone."""
    if pid is None:
        return []
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def end_survivors(members: set[psutil.Process], mark: str, *, spare: int | None, where: Path) -> None:
    """Kills those of `members` that still run, and every process with the variable `mark`; `spare` is a pid.

    DirtyDeviceError that names them when some survive SIGKILL: their node goes into quarantine.
    """
    left: list[psutil.Process] = []
    for _ in range(LOOKS):
        left = [process for process in members | _marked(mark, spare) if _runs(process)]
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(POLL_S)
    raise DirtyDeviceError(
        "processes of an engine survived SIGKILL",
        where=str(where),
        found=", ".join(str(process.pid) for process in left),
        remedy="Take this node out of service.",
    )


def _marked(mark: str, spare: int | None) -> set[psutil.Process]:
    """Processes anywhere that have this engine's variable: they fled the tree, or lost the supervisor."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if mark.encode() in variables and process.pid != spare:
                found.add(process)
    return found


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
