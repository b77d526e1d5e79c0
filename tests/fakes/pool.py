"""The fake engine's KV pool: requests hold their whole length from admission on, or queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Pool"]

BLOCK = 16


class Pool:
    """Admits requests in order while blocks and sequences are left."""

    def __init__(self, tokens: int, sequences: int) -> None:
        self.tokens = tokens
        self.sequences = sequences
        self.used = 0
        self.running = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def usage(self) -> float:
        return self.used / self.tokens if self.tokens else 0.0

    @asynccontextmanager
    async def held(self, length: int) -> AsyncIterator[None]:
        """Holds the blocks of `length` tokens."""
        size = -(-length // BLOCK) * BLOCK
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((size, turn))
        self._admit()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self.used -= size
                self.running -= 1
            elif (size, turn) in self.waiting:
                self.waiting.remove((size, turn))
            self._admit()

    def _admit(self) -> None:
        while self.waiting and self.running < self.sequences:
            size, turn = self.waiting[0]
            if self.used + size > self.tokens:
                return
            self.waiting.popleft()
            if not turn.cancelled():
                self.used += size
                self.running += 1
                turn.set_result(None)
