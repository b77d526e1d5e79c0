"""What the fake engine's routes share: the voice, the pool, counters, and how long things take."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web
from generation import Voice
from pool import Pool
from told import Faults, Told

__all__ = ["State"]


class State:
    """One running engine."""

    def __init__(self, told: Told) -> None:
        self.told = self.first_told = told
        self.voice = Voice(told)
        self.pool = Pool(told.pool_tokens, told.flags.max_num_seqs)
        self.name = told.flags.served_model_name or str(told.folder)
        self.prefix_hits = 0
        self.generated = 0
        self.count = 0
        """Completions and chats so far."""
        self.queue_s = 0.0
        self.queued = 0
        self.seen: set[bytes] = set()

    def tell(self, changes: dict[str, Any]) -> None:
        """Becomes an engine that was told otherwise, its counters at zero: one process serves many tests."""
        faults = Faults(**changes.pop("faults", {}))
        bigram = replace(self.first_told.bigram, **changes.pop("bigram", {}))
        told = replace(self.first_told, faults=faults, bigram=bigram, **changes)
        self.voice = self.voice.retold(told)
        self.told = told
        self.pool.tokens = told.pool_tokens
        self.count = self.prefix_hits = 0
        self.seen.clear()

    @asynccontextmanager
    async def admitted(self, length: int) -> AsyncIterator[None]:
        """Holds the pool for a request of `length` tokens once it is its turn."""
        start = time.perf_counter()
        async with self.pool.held(length):
            self.queue_s += time.perf_counter() - start
            self.queued += 1
            self.prefix_hits += self.told.faults.prefix_hits
            yield

    def prefill_s(self, prompt: list[int]) -> float:
        return len(prompt) / self.told.prefill_tokens_per_s if self.told.prefill_tokens_per_s else 0.0

    def pace_s(self, prompt: list[int]) -> float:
        """Seconds a token."""
        faults = self.told.faults
        pace = faults.slow / self.told.tokens_per_s if self.told.tokens_per_s else 0.0
        key = hashlib.sha256(str(prompt).encode()).digest()
        if faults.answer_cache and key in self.seen:
            pace /= 10
        self.seen.add(key)
        return pace

    def maybe_die(self, number: int) -> None:
        if self.told.faults.dies_at and number >= self.told.faults.dies_at:
            os._exit(1)

    def drop_later(self, request: web.Request) -> None:
        """Closes the connection a moment after an answer that promised to keep it."""
        if self.told.faults.drop_keepalive and request.transport is not None:
            asyncio.get_running_loop().call_later(0.02, request.transport.abort)

    def head(self, number: int, *, chat: bool) -> dict[str, Any]:
        kind = ("chatcmpl", "chat.completion.chunk") if chat else ("cmpl", "text_completion")
        return {
            "id": f"{kind[0]}-{number:016x}",
            "object": kind[1],
            "created": 1796012429,
            "model": self.name,
        }
