"""Limits on the memory and the processes of an engine, by a control group of its own where we may make one.

Version 2 (one tree, a group may only hold processes or groups) and version 1 (a tree for each controller). In a
container the tree is often read-only: then there is none, and the limits are kept by other means.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PREFIX", "ControlGroup"]

ROOT = Path("/sys/fs/cgroup")
PREFIX = "lowbit-"
STALE_S = 600.0
"""A group gets its members at once."""
VERSION_1 = {"memory": "memory.limit_in_bytes", "pids": "pids.max"}
VERSION_2 = {"memory": "memory.max", "pids": "pids.max"}


class ControlGroup:
    """The folders of one group, made; `close` removes them when its processes have ended."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders
        """By controller, `memory` and `pids`; those that could be made."""

    @classmethod
    def make(cls, name: str, *, memory_bytes: int, processes: int, root: Path = ROOT) -> ControlGroup:
        """A group with these limits, as far as this host lets us."""
        limits = {"memory": str(memory_bytes), "pids": str(processes)}
        unified = (root / "cgroup.controllers").is_file()
        files = VERSION_2 if unified else VERSION_1
        folders: dict[str, Path] = {}
        for controller, parent in _parents(root, unified):
            if controller in folders:
                continue
            folder = parent / name
            _sweep(parent)
            try:
                folder.mkdir(exist_ok=True)
                (folder / files[controller]).write_text(limits[controller])
            except OSError:
                if folder not in folders.values():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                continue
            folders[controller] = folder
        return cls(folders)

    @property
    def members(self) -> tuple[Path, ...]:
        """Files that a process writes `0` into to become a member."""
        return tuple(dict.fromkeys(folder / "cgroup.procs" for folder in self.folders.values()))

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has ended a member for memory."""
        folder = self.folders.get("memory")
        if folder is None:
            return False
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                words = [line.split() for line in (folder / name).read_text().splitlines()]
                return any(word[0] == "oom_kill" and int(word[1]) > 0 for word in words if len(word) == 2)
        return False

    def close(self) -> None:
        """Removes the group; a moment may pass until the kernel has seen its last process end."""
        for folder in set(self.folders.values()):
            for _ in range(50):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)
                else:
                    break
        self.folders = {}


def _sweep(parent: Path) -> None:
    """Removes groups of ours that nobody is in any more: whoever made them was killed together with its supervisor."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it has members
            if time.time() - folder.stat().st_mtime > STALE_S:
                folder.rmdir()


def _parents(root: Path, unified: bool) -> Iterator[tuple[str, Path]]:
    """Where a group of each controller may be made, the nearest to this process first."""
    for line in _own_groups():
        _, names, path = line.split(":", 2)
        for controller in VERSION_2 if unified and not names else names.split(","):
            if controller in VERSION_2:
                tree = root if unified else root / controller
                own = tree / path.lstrip("/")
                # A container may see its own group as the root of the tree, whatever /proc says; and in
                # version 2 a group that holds processes, as ours does, may not hold groups with limits.
                yield controller, own
                yield controller, own.parent if own != tree else tree
                yield controller, tree


def _own_groups() -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{os.getpid()}/cgroup").read_text().splitlines()
    return []
