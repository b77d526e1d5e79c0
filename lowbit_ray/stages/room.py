"""Room on the disk before anything is fetched: folders of submissions that are over go, the oldest first.

A sealed checkpoint is tens of GiB, and its folder holds compiled graphs and logs beside it. What lasts of a submission
stands in the ledger; its folder is kept for whoever looks into a verdict, as far as there is room.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from lowbit_ray.checkpoint.sealed import discard
from lowbit_ray.lease import read_lease
from lowbit_ray.ledger import Ledger
from lowbit_ray.settings import Settings

__all__ = ["make_room"]

ID = re.compile(r"[0-9a-f]{16}")
MARGIN = 8 * 2**30
"""Bytes that stay free beside what is fetched: an engine's cache may take as many."""
ANCHOR_S = 30 * 86400.0
"""A pod that was not seen for so long is gone, and nobody finds what the anchor's engine has compiled there."""


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def make_room(
    settings: Settings, ledger: Ledger, needed: int, *, free: Callable[[Path], int] = _free
) -> list[str]:
    """Removes folders until `needed` bytes are free, or none of those is left that are over; ids in order of removal.

    Of those that are over, at most `settings.kept` stay, however much is free: some file systems have no end. A
    submission that this ledger does not know is somebody else's.
    """
    cache, removed = settings.cache, list[str]()
    for folder in _oldest_first(cache / "anchors", "*/*"):
        if time.time() - folder.stat().st_mtime > ANCHOR_S:
            discard(folder)
    over = [folder for folder in _oldest_first(cache / "submissions", "*") if _is_over(ledger, folder.name)]
    while over and (len(over) > settings.kept or free(cache) < needed + MARGIN):
        folder = over.pop(0)
        discard(folder)
        removed.append(folder.name)
    return removed


def _oldest_first(parent: Path, pattern: str) -> list[Path]:
    """Folders by when something was last put there; one that another process has removed meanwhile is left out."""
    found = []
    for folder in parent.glob(pattern):
        try:
            found.append((folder.stat().st_mtime, folder))
        except FileNotFoundError:
            continue
    return [folder for _, folder in sorted(found)]


def _is_over(ledger: Ledger, name: str) -> bool:
    """Whether it has its verdict, or was cancelled and let go of."""
    if not ID.fullmatch(name):
        return False
    keys = ledger.keys(f"submissions/{name}/")
    if f"submissions/{name}/record.json" in keys:
        return True
    if f"submissions/{name}/cancelled.json" not in keys:
        return False
    lease = read_lease(ledger, name)
    return lease is None or not lease.held(datetime.now(UTC))
