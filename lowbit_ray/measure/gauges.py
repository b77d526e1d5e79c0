"""What /metrics says while a workload runs: KV pool in use, requests in flight, prefix-cache hits.

vLLM's names, the older one of the KV gauge too. The gauge is utilisation of the pool (in blocks), so bytes
come from the pool's size in the engine's own accounts, not from here.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

import aiohttp

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint, get_text

__all__ = ["GaugeWatch", "Gauges", "read_gauges"]

METRICS = "/metrics"
KV_NAMES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
RUNNING = "vllm:num_requests_running"
HITS = "vllm:prefix_cache_hits_total"
FIRST_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Gauges:
    """One reading; None where the server does not say."""

    kv_usage: float | None
    running: float | None
    prefix_hits: float | None


def read_gauges(text: str) -> Gauges:
    """Reads Prometheus text. Sums over engines, except the KV gauge, of which the largest counts."""
    usages = [value for name in KV_NAMES for value in _values(text, name)]
    running, hits = _values(text, RUNNING), _values(text, HITS)
    return Gauges(
        kv_usage=max(usages) if usages else None,
        running=sum(running) if running else None,
        prefix_hits=sum(hits) if hits else None,
    )


def _values(text: str, name: str) -> list[float]:
    found = re.findall(rf"^{re.escape(name)}(?:\{{[^\n]*\}})? (\S+)", text, flags=re.MULTILINE)
    try:
        return [float(value) for value in found]
    except ValueError:
        raise EngineAnswerError("a metric is not a number", where=f"{METRICS}: {name}") from None


@dataclass(slots=True)
class GaugeWatch:
    """Polls /metrics while a workload runs and keeps the peaks."""

    session: aiohttp.ClientSession
    endpoint: Endpoint
    poll_s: float
    """Seconds between readings; the first ones come quicker, for short workloads."""
    kv_usage: float | None = None
    running: float | None = None
    busy_readings: int = 0
    """Readings that saw a request running."""
    available: bool = False
    first_hits: float | None = None
    last_hits: float | None = None
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    async def __aenter__(self) -> GaugeWatch:
        await self._read(first=True)
        if self.available:
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
        await self._read(first=False)

    @property
    def prefix_hits(self) -> float | None:
        """Hits, in tokens, since the watch began."""
        if self.first_hits is None or self.last_hits is None:
            return None
        return self.last_hits - self.first_hits

    async def _poll(self) -> None:
        pause = min(FIRST_POLL_S, self.poll_s)
        while True:
            await asyncio.sleep(pause)
            await self._read(first=False)
            pause = min(2 * pause, self.poll_s)

    async def _read(self, *, first: bool) -> None:
        text = await get_text(self.session, self.endpoint, METRICS)
        if text is None:
            return
        now = read_gauges(text)
        self.available = True
        if first:
            self.first_hits = now.prefix_hits
            return
        self.last_hits = now.prefix_hits
        if now.running:
            self.busy_readings += 1
            self.running = max(self.running or 0.0, now.running)
        if now.kv_usage is not None:
            self.kv_usage = max(self.kv_usage or 0.0, now.kv_usage)
