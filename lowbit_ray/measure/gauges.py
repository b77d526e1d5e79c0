"""What /metrics says while a workload runs: KV pool in use, requests in flight, prefix-cache hits.

vLLM's names, the older one of the KV gauge too; of requests in flight also SGLang's and llama.cpp's. The KV gauge
is utilisation of the pool (in blocks), so bytes come from the pool's size in the engine's own accounts, not from
here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from dataclasses import dataclass, field
from typing import Literal

import aiohttp

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint, get_text

__all__ = ["GaugeWatch", "Gauges", "read_gauges"]

METRICS = "/metrics"
KV_NAMES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
HITS = "vllm:prefix_cache_hits_total"
QUEUE = "vllm:request_queue_time_seconds"
FIRST_POLL_S = 0.05
SOON_S, STEP = 0.1, 0.2
"""No pause is longer than these seconds and this share of the time so far: of a workload of two seconds, half of which
is prefill, the pool must be seen in use as well."""
LONGEST_POLL_S = 2.0
SHARE = 0.01
"""Of the server's time that readings may take: it renders its page on the loop that streams tokens."""
RARER = 4
"""Pauses are so many times as long once requests say when they are about to end: those moments have the peaks."""
LARGEST = 1e15
KEPT_BYTES = 2**26
"""Of pages at once: vLLM's are some tens of kilobytes, and a server may send more than our memory holds."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """One reading; None where the server does not say."""

    kv_usage: float | None
    running: float | None
    prefix_hits: float | None
    queue_s: float | None
    """Seconds that all requests so far have waited inside the server."""
    queued: float | None
    """Requests so far that have left the queue."""


def read_gauges(text: str) -> Gauges:
    """Reads Prometheus text. Sums over engines, except the KV gauge, of which the largest counts."""
    usages = [value for name in KV_NAMES for value in _values(text, name)]
    return Gauges(
        kv_usage=max(usages) if usages else None,
        running=next((total for name in RUNNING if (total := _total(text, name)) is not None), None),
        prefix_hits=_total(text, HITS),
        queue_s=_total(text, f"{QUEUE}_sum"),
        queued=_total(text, f"{QUEUE}_count"),
    )


def _total(text: str, name: str) -> float | None:
    values = _values(text, name)
    return sum(values) if values else None


def _values(text: str, name: str) -> list[float]:
    found = re.findall(rf"^{re.escape(name)}(?:\{{[^\n]*\}})? (\S+)", text, flags=re.MULTILINE)
    try:
        values = [float(value) for value in found]
    except ValueError:
        values = [math.nan]
    if not all(abs(value) < LARGEST for value in values):
        raise EngineAnswerError(
            "a metric is not a number that can be",
            where=f"{METRICS}: {name}",
            found="NaN, an infinity, or no number",
            expected=f"a number below {LARGEST:g}",
        )
    return values


@dataclass(slots=True)
class GaugeWatch:
    """Keeps pages of /metrics while a workload runs; at its end, reads them and keeps the peaks.

    A pool is as full as it gets just before a request ends and gives its blocks back, often for less time than lies
    between two readings: who runs the load calls `look` then, so that a peak is no matter of luck.
    """

    session: aiohttp.ClientSession
    endpoint: Endpoint
    poll_s: float
    """Seconds between readings; the first ones come quicker, for short workloads, and later ones slower where a page
    costs the server much, so that watching it does not slow it down."""
    kv_usage: float | None = None
    running: float | None = None
    busy_readings: int = 0
    """Readings that saw a request running."""
    first: Gauges | None = None
    last: Gauges | None = None
    _pages: list[str] = field(default_factory=list, repr=False)
    _cost_s: float = math.inf
    """What a page costs the server: its quickest answer, as later ones wait for the engine's work too."""
    _told: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _told_at: float = -math.inf
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    async def __aenter__(self) -> GaugeWatch:
        page = await self._get()
        if page is not None:
            self.first = read_gauges(page)
            self._task = asyncio.create_task(self._poll())
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if self._task is None:
            return
        self._task.cancel()
        outcome = (await asyncio.gather(self._task, return_exceptions=True))[0]
        if error is not None:
            return
        if isinstance(outcome, EngineAnswerError):
            raise outcome
        await self._keep()
        self._read_kept()

    def look(self) -> None:
        """A request is about to end: takes a reading now, unless the last such moment was just before."""
        now = time.perf_counter()
        if now - self._told_at >= self._cost_s / SHARE:
            self._told_at = now
            self._told.set()

    @property
    def prefix_hits(self) -> float | None:
        """Hits, in tokens, since the watch began."""
        return self._gain("prefix_hits")

    @property
    def mean_queue_ms(self) -> float | None:
        """Mean time that a request of this watch waited inside the server before it ran."""
        waited, requests = self._gain("queue_s"), self._gain("queued")
        return None if waited is None or not requests else 1000 * waited / requests

    def _gain(self, name: Literal["prefix_hits", "queue_s", "queued"]) -> float | None:
        before, after = getattr(self.first, name, None), getattr(self.last, name, None)
        return None if before is None or after is None else after - before

    async def _poll(self) -> None:
        began = time.perf_counter()
        pause = min(FIRST_POLL_S, self.poll_s)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), pause)
            self._told.clear()
            await self._keep()
            rarer = RARER if math.isfinite(self._told_at) else 1
            usual = min(max(self.poll_s, rarer * self._cost_s / SHARE), LONGEST_POLL_S)
            pause = min(2 * pause, usual, max(SOON_S, STEP * (time.perf_counter() - began)))

    async def _keep(self) -> None:
        page = await self._get()
        if page is not None:
            self._pages.append(page)
            if sum(map(len, self._pages)) > KEPT_BYTES:
                self._read_kept()

    def _read_kept(self) -> None:
        for page in self._pages:
            self._note(read_gauges(page))
        self._pages.clear()

    async def _get(self) -> str | None:
        asked = time.perf_counter()
        page = await get_text(self.session, self.endpoint, METRICS)
        self._cost_s = min(self._cost_s, time.perf_counter() - asked)
        return page

    def _note(self, now: Gauges) -> None:
        self.last = now
        if now.running:
            self.busy_readings += 1
            self.running = max(self.running or 0.0, now.running)
        if now.kv_usage is not None:
            self.kv_usage = max(self.kv_usage or 0.0, now.kv_usage)
