"""What one timed run of a workload comes to.

Definitions: output_throughput = generated tokens / wall time of the whole workload,
prefill and queueing included. TPOT of a request = (last token − first token) / (tokens − 1), tokens from
`usage`, never from chunks; `median_tpot_ms` its median over requests. TTFT runs from submission, so it holds
the time a request waits inside the server. ITL is the time between chunks, as they come; a chunk may hold
several tokens, so it is shown and never scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lowbit_ray.measure.gauges import GaugeWatch
from lowbit_ray.measure.load import Load, LoadResult
from lowbit_ray.rules import Workload, _Described, _Frozen
from lowbit_ray.stats import standard_error

__all__ = [
    "Output",
    "Percentiles",
    "Warmed",
    "WorkloadRun",
    "efficiency",
    "speed_standard_error",
    "summarize",
]

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


class Percentiles(_Frozen):
    """Spread of one latency over requests (over chunks for ITL), milliseconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class WorkloadRun(_Described):
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
    warm_up_agreed: bool | None = None
    """Whether the last two passes agreed; None without any, and in records from before it was kept."""
    mean_queue_ms: float | None = None
    """Mean time a request waited inside the server before it ran; None where the server does not say."""
    client_lag_ms: float | None = None
    """Longest time by which the client woke late: the error of any one moment it noted."""
    cpu_governor: str | None = None
    """Of the client's host: `powersave` stretches TTFT."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """How the passes before a timed run went."""

    passes: int
    agreed: bool | None
    """Whether the last two agreed; None without any."""


class Output(_Frozen):
    """What a timed request said; hidden, kept for the audit."""

    prompt: tuple[int, ...] = Field(repr=False)
    token_ids: tuple[int, ...] | None = Field(repr=False)
    text: str = Field(repr=False)


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


def summarize(name: str, load: Load, result: LoadResult, watch: GaugeWatch, warmed: Warmed) -> WorkloadRun:
    """The figures of a load's rows."""
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
        warm_up_passes=warmed.passes,
        warm_up_agreed=warmed.agreed,
        mean_queue_ms=watch.mean_queue_ms,
        client_lag_ms=1000 * result.client_lag_s,
        cpu_governor=_governor(),
    )


def _percentiles(seconds: Sequence[float] | NDArray[np.float64]) -> Percentiles:
    array = 1000 * np.asarray(seconds, dtype=np.float64)
    if array.size == 0:
        array = np.zeros(1)
    p50, p90, p95, p99 = (float(value) for value in np.percentile(array, [50, 90, 95, 99]))
    return Percentiles(mean=float(array.mean()), p50=p50, p90=p90, p95=p95, p99=p99, max=float(array.max()))


def _governor() -> str | None:
    try:
        return GOVERNOR.read_text().strip()
    except OSError:
        return None
