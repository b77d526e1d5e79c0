"""How much of a checkpoint has arrived, for whoever waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Told", "counter"]

Told = Callable[[int, int], None]
"""Is told bytes that are there and bytes in all."""


def counter(total: int, told: Told | None) -> Callable[[int], None]:
    """Adds up the bytes that several threads have fetched."""
    done, lock = 0, threading.Lock()

    def add(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            if told is not None:
                told(done, total)

    return add
