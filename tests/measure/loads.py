"""Small loads that tests send."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

from lowbit_ray.errors import InfraError
from lowbit_ray.measure.endpoint import Endpoint, connect
from lowbit_ray.measure.load import Load, LoadResult, negotiate, run_load
from lowbit_ray.measure.workload import Timed, WarmUp, run_workload
from lowbit_ray.rules import Workload

__all__ = ["load", "prompts", "time_workload", "unless_starved", "workload"]

Result = TypeVar("Result")


def prompts(count: int, length: int = 16, seed: int = 0) -> list[tuple[int, ...]]:
    """Random bytes, all different."""
    generator = random.Random(seed)
    return [tuple(generator.randrange(256) for _ in range(length)) for _ in range(count)]


def load(
    endpoint: Endpoint, *, count: int = 4, output_len: int = 6, timeout_s: float = 5.0, **fields: Any
) -> LoadResult:
    """Negotiates and sends `count` prompts, two in flight."""
    sent = fields.pop("sent", None) or prompts(count)

    async def go() -> LoadResult:
        async with connect(endpoint, timeout_s=timeout_s) as session:
            extensions = await negotiate(session, endpoint, sent[0][:8])
            plan = Load(prompts=sent, output_len=output_len, concurrency=2, extensions=extensions)
            return await run_load(session, endpoint, plan, **fields)

    return unless_starved(lambda: asyncio.run(go()))


def unless_starved(measure: Callable[[], Result]) -> Result:
    """Tries again, as the driver would, where a busy machine gave the client no CPU."""
    for _ in range(4):
        try:
            return measure()
        except InfraError as error:
            if "got no CPU" not in str(error):
                raise
    return measure()


def workload(**fields: Any) -> Workload:
    """Eight requests, four in flight."""
    values: dict[str, Any] = {
        "description": "a small one",
        "input_len": 16,
        "output_len": 8,
        "num_prompts": 8,
        "max_concurrency": 4,
        "request_rate": "inf",
        "metric": "output_throughput",
        "better": "higher",
    }
    return Workload(**{**values, **fields})


def time_workload(endpoint: Endpoint, plan: Workload | None = None, **fields: Any) -> Timed:
    """Runs a workload once, with one pass of warm-up."""
    plan = plan or workload()
    sent = prompts(plan.num_prompts + plan.max_concurrency, plan.input_len)
    timed, others = sent[: plan.num_prompts], sent[plan.num_prompts :]
    values: dict[str, Any] = {
        "timeout_s": 5.0,
        "poll_s": 0.02,
        "warm_up": WarmUp(others, max_passes=1),
        "cpu_share_limit": 2.0,
    }
    return unless_starved(
        lambda: asyncio.run(run_workload(endpoint, "serve", plan, timed, **{**values, **fields}))
    )
