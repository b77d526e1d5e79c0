"""One timed workload: rows → throughput, TPOT and the engine's peaks while it ran.

Definitions (SPEC, "Workloads"): output_throughput = generated tokens / wall time of the whole workload,
prefill and queueing included. TPOT of a request = (last token − first token) / (tokens − 1), tokens from
`usage`, never from chunks; `median_tpot_ms` its median over requests. TTFT runs from submission, so it holds
the time a request waits inside the server. ITL is the time between chunks, as they come; a chunk may hold
several tokens, so it is shown and never scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import aiohttp
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lowbit_ray.errors import EngineAnswerError, InfraError
from lowbit_ray.measure.endpoint import Endpoint, connect
from lowbit_ray.measure.gauges import GaugeWatch
from lowbit_ray.measure.load import Load, LoadResult, Progress, Prompt, negotiate, run_load
from lowbit_ray.measure.stream import Row
from lowbit_ray.rules import Workload, _Frozen
from lowbit_ray.stats import standard_error

__all__ = [
    "Output",
    "Percentiles",
    "Timed",
    "WarmUp",
    "WorkloadRun",
    "efficiency",
    "run_workload",
    "speed_standard_error",
]

REQUEST_LIMIT = 10
"""A whole request may take this many times the longest wait for one byte."""


class Percentiles(_Frozen):
    """Spread of one latency over requests (over chunks for ITL), milliseconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class WorkloadRun(_Frozen):
    """What one timed run of a workload measured; public."""

    name: str
    output_throughput: float
    """Generated tokens a second of wall time."""
    median_tpot_ms: float
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    itl_ms: Percentiles
    e2e_ms: Percentiles
    requests: int
    mean_input_len: float
    """Realised prompt tokens of a request, by the server's count."""
    mean_output_len: float
    """Realised generated tokens of a request, by the server's count."""
    wall_s: float
    decode_share: float
    """Share of the requests' time that lies between their first and last token."""
    client_cpu_s: float
    """CPU time of the load client's thread."""
    client_cpu_share: float
    """Of the wall time; near 1 the client is the bottleneck and the run is refused."""
    kv_usage: float | None
    """Largest share of the KV pool in use; None where the server does not say."""
    running: float | None
    """Most requests the server ran at once; None where it does not say."""
    prefix_cache_hits: float | None
    """Prompt tokens found in a prefix cache: 0, or None where the server does not say."""
    token_ids_returned: bool
    min_tokens_accepted: bool
    warm_up_passes: int


class Output(_Frozen):
    """What a timed request said; hidden, kept for the audit."""

    prompt: tuple[int, ...] = Field(repr=False)
    token_ids: tuple[int, ...] | None = Field(repr=False)
    text: str = Field(repr=False)


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
    progress: Progress | None = None,
    poll_s: float = 0.5,
    cpu_share_limit: float = 0.9,
) -> Timed:
    """Warms up, then sends all prompts and measures.

    Raises EngineAnswerError for a failed, short or miscounted request, for prefix-cache hits and for withheld
    tokens; InfraError where the client itself was the bottleneck.
    """
    _check_prompts(name, workload, prompts, warm_up)
    async with connect(endpoint, timeout_s=timeout_s) as session:
        extensions = await negotiate(session, endpoint, (warm_up.prompts if warm_up else prompts)[0])
        load = Load(
            prompts=prompts,
            output_len=workload.output_len,
            concurrency=workload.max_concurrency,
            timeout_s=timeout_s,
            request_limit_s=REQUEST_LIMIT * timeout_s,
            extensions=extensions,
        )
        passes = await _warm_up(session, endpoint, load, warm_up)
        async with GaugeWatch(session, endpoint, poll_s) as watch:
            result = await run_load(session, endpoint, load, progress)
    run = _summary(name, load, result, watch, passes)
    _check_run(run, workload, watch, cpu_share_limit)
    outputs = tuple(
        Output(prompt=tuple(prompts[row.index]), token_ids=row.token_ids, text=row.text)
        for row in result.rows
    )
    return Timed(run, outputs, result.rows)


def efficiency(run: WorkloadRun, workload: Workload) -> float:
    """Higher is better: output_throughput, or 1000 / median_tpot_ms."""
    return run.output_throughput if workload.metric == "output_throughput" else 1000 / run.median_tpot_ms


def speed_standard_error(candidate: Sequence[float], anchor: Sequence[float]) -> float | None:
    """Measured relative standard error of a speed gain, from repeats of both sides.

    With as many repeats on both sides they are paired in order, and the error is that of the mean ratio;
    otherwise the relative errors of the two means add in squares. None with fewer than two repeats a side.
    """
    if len(candidate) == len(anchor):
        ratios = [mine / theirs for mine, theirs in zip(candidate, anchor, strict=True)]
        error = standard_error(ratios)
        return None if error is None else error / fmean(ratios)
    errors = standard_error(candidate), standard_error(anchor)
    if errors[0] is None or errors[1] is None:
        return None
    return math.hypot(errors[0] / fmean(candidate), errors[1] / fmean(anchor))


def _check_prompts(name: str, workload: Workload, prompts: Sequence[Prompt], warm_up: WarmUp | None) -> None:
    lengths = {len(prompt) for prompt in (*prompts, *(warm_up.prompts if warm_up else ()))}
    if lengths != {workload.input_len} or len(prompts) != workload.num_prompts:
        raise ValueError(
            f"workload {name} takes {workload.num_prompts} prompts of {workload.input_len} tokens, "
            f"got {len(prompts)} of {sorted(lengths)}"
        )
    if warm_up and {tuple(prompt) for prompt in warm_up.prompts} & {tuple(prompt) for prompt in prompts}:
        raise ValueError(f"workload {name} warms up with its own prompts")


async def _warm_up(
    session: aiohttp.ClientSession, endpoint: Endpoint, load: Load, warm_up: WarmUp | None
) -> int:
    """Passes made until two in a row agree, or all of them."""
    if warm_up is None:
        return 0
    before = 0.0
    for number in range(1, warm_up.max_passes + 1):
        size = min(load.concurrency, len(warm_up.prompts))
        start = (number - 1) * size % len(warm_up.prompts)
        prompts = [*warm_up.prompts, *warm_up.prompts][start : start + size]
        result = await run_load(session, endpoint, replace(load, prompts=prompts))
        now = size * load.output_len / result.wall_s
        if abs(now - before) <= warm_up.agreement * max(now, before):
            return number
        before = now
    return warm_up.max_passes


def _summary(name: str, load: Load, result: LoadResult, watch: GaugeWatch, passes: int) -> WorkloadRun:
    rows = result.rows
    gaps = np.concatenate([np.diff(row.token_times_s) for row in rows])
    tpots = [row.tpot_s for row in rows]
    return WorkloadRun(
        name=name,
        output_throughput=sum(row.completion_tokens or 0 for row in rows) / result.wall_s,
        median_tpot_ms=1000 * float(np.median(tpots)),
        ttft_ms=_percentiles([row.ttft_s for row in rows]),
        tpot_ms=_percentiles(tpots),
        itl_ms=_percentiles(gaps),
        e2e_ms=_percentiles([row.e2e_s for row in rows]),
        requests=len(rows),
        mean_input_len=fmean(row.prompt_tokens or 0 for row in rows),
        mean_output_len=fmean(row.completion_tokens or 0 for row in rows),
        wall_s=result.wall_s,
        decode_share=sum(row.last_s - row.first_s for row in rows) / sum(row.e2e_s for row in rows),
        client_cpu_s=result.client_cpu_s,
        client_cpu_share=result.client_cpu_s / result.wall_s,
        kv_usage=watch.kv_usage,
        running=watch.running,
        prefix_cache_hits=watch.prefix_hits,
        token_ids_returned=load.extensions.return_token_ids,
        min_tokens_accepted=load.extensions.min_tokens,
        warm_up_passes=passes,
    )


def _percentiles(seconds: Sequence[float] | NDArray[np.float64]) -> Percentiles:
    array = 1000 * np.asarray(seconds, dtype=np.float64)
    if array.size == 0:
        array = np.zeros(1)
    p50, p90, p95, p99 = (float(value) for value in np.percentile(array, [50, 90, 95, 99]))
    return Percentiles(mean=float(array.mean()), p50=p50, p90=p90, p95=p95, p99=p99, max=float(array.max()))


def _check_run(run: WorkloadRun, workload: Workload, watch: GaugeWatch, cpu_share_limit: float) -> None:
    where = f"workload {run.name}"
    if run.client_cpu_share > cpu_share_limit:
        raise InfraError(
            "the load client was the bottleneck",
            where=where,
            found=f"{run.client_cpu_share:.2f} of one core",
            expected=f"≤ {cpu_share_limit}",
            remedy="Give the pod more CPUs.",
        )
    if run.prefix_cache_hits:
        raise EngineAnswerError(
            "prompts were found in a prefix cache, though none was sent before",
            where=f"{where}: vllm:prefix_cache_hits",
            found=f"{run.prefix_cache_hits:g} tokens",
            expected=0,
            remedy="Serve without prefix caching.",
        )
    if watch.busy_readings and watch.kv_usage == 0:
        raise EngineAnswerError(
            "the KV gauge reads 0 while requests run",
            where=f"{where}: vllm:kv_cache_usage_perc",
            expected="> 0",
            remedy="Serve with one API server.",
        )
