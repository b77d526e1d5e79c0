"""Times one workload on a running server: warm-up, closed loop, peaks while it runs, checks.

The definitions of what is measured stand in runs.py, what makes a run untrue in trust.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from lowbit_ray.measure.endpoint import Endpoint, connect
from lowbit_ray.measure.gauges import GaugeWatch
from lowbit_ray.measure.load import Load, Progress, Prompt, negotiate, run_load
from lowbit_ray.measure.runs import (
    Output,
    Warmed,
    WorkloadRun,
    efficiency,
    speed_standard_error,
    summarize,
)
from lowbit_ray.measure.stream import Row
from lowbit_ray.measure.trust import check_prompts, check_run
from lowbit_ray.rules import Workload

__all__ = [
    "Output",
    "Timed",
    "WarmUp",
    "WorkloadRun",
    "efficiency",
    "run_workload",
    "speed_standard_error",
]

Told = Callable[[int, int, str], None]
"""Called with the tokens so far, all of them, and what they are of; ten times a second."""
BEGINNING = 8
"""Prompt tokens of the request that finds out what the server accepts: less than a block of a prefix cache."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Passes of the workload's own shapes before the clock starts."""

    prompts: Sequence[Prompt] = field(repr=False)
    """Other prompts than the timed ones, of the same length; one pass takes `concurrency` of them."""
    max_passes: int = 4
    """At least one; the passes end when two in a row agree."""
    agreement: float = 0.05
    """Two passes agree when their throughputs differ by less than this share."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A run, and what it said."""

    run: WorkloadRun
    outputs: tuple[Output, ...] = field(repr=False)
    rows: tuple[Row, ...] = field(repr=False)


async def run_workload(
    endpoint: Endpoint,
    name: str,
    workload: Workload,
    prompts: Sequence[Prompt],
    *,
    timeout_s: float,
    warm_up: WarmUp | None = None,
    progress: Told | None = None,
    poll_s: float = 0.5,
    cpu_share_limit: float = 0.9,
) -> Timed:
    """Warms up, then sends all prompts and measures.

    Raises EngineAnswerError for a failed, short or miscounted request and for a run that trust.py does not
    believe; InfraError where the client itself was the bottleneck.
    """
    check_prompts(name, workload, prompts, warm_up.prompts if warm_up else ())
    async with connect(endpoint, timeout_s=timeout_s) as session:
        extensions = await negotiate(session, endpoint, prompts[0][:BEGINNING])
        load = Load(
            prompts=prompts,
            output_len=workload.output_len,
            concurrency=workload.max_concurrency,
            extensions=extensions,
        )
        warmed = await _warm_up(session, endpoint, load, warm_up, progress)
        at_once = min(load.concurrency, len(prompts))
        doing = f"{at_once} request{'' if at_once == 1 else 's'} at once, token"
        async with GaugeWatch(session, endpoint, poll_s) as watch:
            result = await run_load(session, endpoint, load, _saying(progress, doing), watch.look)
    run = summarize(name, load, result, watch, warmed)
    check_run(run, workload, cpu_share_limit=cpu_share_limit)
    outputs = tuple(
        Output(prompt=tuple(prompts[row.index]), token_ids=row.token_ids, text=row.text)
        for row in result.rows
    )
    return Timed(run, outputs, result.rows)


def _saying(progress: Told | None, doing: str) -> Progress | None:
    return None if progress is None else lambda done, total: progress(done, total, doing)


async def _warm_up(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    load: Load,
    warm_up: WarmUp | None,
    progress: Told | None,
) -> Warmed:
    """Passes until two in a row agree, or all of them."""
    if warm_up is None:
        return Warmed(0, None)
    before: float | None = None
    for number in range(1, warm_up.max_passes + 1):
        size = min(load.concurrency, len(warm_up.prompts))
        start = (number - 1) * size % len(warm_up.prompts)
        prompts = [*warm_up.prompts, *warm_up.prompts][start : start + size]
        doing = f"warm-up pass {number}, token"
        result = await run_load(session, endpoint, replace(load, prompts=prompts), _saying(progress, doing))
        now = size * load.output_len / result.wall_s
        if before is not None and abs(now - before) <= warm_up.agreement * max(now, before):
            return Warmed(number, True)
        before = now
    return Warmed(warm_up.max_passes, False)
