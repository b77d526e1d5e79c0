"""One workload as the page shows it: candidate beside anchor, speed, memory and the spread of latencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowbit_ray.measure.memory import PeakMemory
from lowbit_ray.measure.workload import WorkloadRun
from lowbit_ray.records import Result
from lowbit_ray.report.lines import NAMES, in_order
from lowbit_ray.rules import Workload

__all__ = ["Bar", "Latency", "Part", "WorkloadView", "workload_views"]

LATENCIES = (
    ("ttft_ms", "TTFT"),
    ("tpot_ms", "TPOT"),
    ("itl_ms", "between chunks"),
    ("e2e_ms", "whole request"),
)
PARTS = (("weights_gib", "weights"), ("kv_gib", "KV in use"), ("other_gib", "other"))


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of a bar."""

    kind: str
    """CSS class."""
    left: float
    """Percent of the bar's whole length."""
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One side's value, and the bar that shows it."""

    side: str
    value: str
    note: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Latency:
    """Spread of one latency over the requests of the last run, milliseconds."""

    name: str
    side: str
    values: tuple[float, ...]
    """mean, p50, p90, p95, p99, max."""


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One workload."""

    title: str
    description: str
    unit: str
    speed: float
    speed_se: float | None
    """Measured relative standard error."""
    rates: tuple[Bar, Bar]
    memory: float
    peaks: tuple[Bar, Bar]
    latencies: tuple[Latency, ...]
    facts: tuple[str, ...]
    """How the runs went, in words."""


def workload_views(result: Result, workloads: Mapping[str, Workload]) -> list[WorkloadView]:
    """The workloads of a result in the rules' order; `workloads` describes those that are still known."""
    return [_view(result, name, workloads.get(name)) for name, _ in in_order(result.speeds)]


def _view(result: Result, name: str, workload: Workload | None) -> WorkloadView:
    mine, theirs = result.efficiency[name], result.anchor_efficiency[name]
    unit = "tokens/s"
    if workload is not None and workload.metric == "median_tpot_ms":
        unit = "tokens/s of one user (1000 / median TPOT)"
    most = max(mine, theirs) or 1.0
    peak, other = result.peak_memory[name], result.anchor_peak_memory[name]
    largest = max(peak.peak_gib, other.peak_gib) or 1.0
    return WorkloadView(
        title=NAMES.get(name, name),
        description=workload.description if workload else "",
        unit=unit,
        speed=result.speeds[name],
        speed_se=result.speeds_se.get(name),
        rates=(
            Bar("candidate", _figure(mine), "", (Part("candidate", 0, 100 * mine / most),)),
            Bar("BF16", _figure(theirs), "", (Part("anchor", 0, 100 * theirs / most),)),
        ),
        memory=result.memories[name],
        peaks=(_peak("candidate", peak, largest), _peak("BF16", other, largest)),
        latencies=tuple(_latencies(result, name)),
        facts=_facts(result, name),
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _peak(side: str, peak: PeakMemory, largest: float) -> Bar:
    held = [(kind, words, getattr(peak, kind)) for kind, words in PARTS]
    parts: list[Part] = []
    left = 0.0
    for kind, _, gib in held:
        if gib is not None:
            parts.append(Part(kind.removesuffix("_gib"), left, 100 * gib / largest))
            left += 100 * gib / largest
    if not parts:
        parts.append(Part("weights", 0, 100 * peak.peak_gib / largest))
    note = ", ".join(f"{words} {gib:.2f}" for _, words, gib in held if gib is not None)
    return Bar(side, f"{peak.peak_gib:.2f}", note or "the device's own count", tuple(parts))


def _latencies(result: Result, name: str) -> list[Latency]:
    found = []
    for field, words in LATENCIES:
        for side, runs in (("candidate", result.runs), ("BF16", result.anchor_runs)):
            if runs.get(name):
                spread = getattr(runs[name][-1], field)
                values = tuple(getattr(spread, key) for key in ("mean", "p50", "p90", "p95", "p99", "max"))
                found.append(Latency(words, side, values))
    return found


def _facts(result: Result, name: str) -> tuple[str, ...]:
    runs: tuple[WorkloadRun, ...] = result.runs.get(name, ())
    if not runs:
        return ()
    run = runs[-1]
    facts = [
        f"{run.requests} requests of {run.mean_input_len:,.0f} prompt tokens, {run.mean_output_len:,.0f} generated, "
        f"in {run.wall_s:.1f} s",
        f"{len(runs)} timed {'run' if len(runs) == 1 else 'runs'} a side, {run.warm_up_passes} warm-up passes"
        f"{', the last two unlike each other' if run.warm_up_agreed is False else ''}",
    ]
    if run.running is not None:
        facts.append(f"at most {run.running:g} requests at once")
    if run.prefix_cache_hits is not None:
        facts.append(f"{run.prefix_cache_hits:g} prompt tokens from a prefix cache")
    facts.append(f"load client at {run.client_cpu_share:.0%} of one CPU")
    return tuple(facts)
