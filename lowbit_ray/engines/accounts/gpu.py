"""Memory of a vLLM server on GPUs, from the lines of its start-up log."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowbit_ray.engines.accounts.lines import find_all, number, per_pod
from lowbit_ray.engines.accounts.memory import Memory
from lowbit_ray.engines.accounts.releases import Release
from lowbit_ray.errors import EngineError, PodError

__all__ = ["read_gpu_memory"]

WEIGHTS = re.compile(r"Model loading took (\S+) GiB(?: memory)? and ([\d.]+) seconds")
POOL = re.compile(r"Available KV cache memory: (\S+) GiB")
HEAD = r"Desired GPU memory utilization is \((?P<share>[\d.]+), (?P<requested>\S+) GiB\)\. Actual usage is "
ITEMIZED = re.compile(
    HEAD + r"(?P<weights>\S+) GiB for weight, (?P<activation>\S+) GiB for peak activation, "
    r"(?P<non_torch>\S+) GiB for non-torch memory, and (?P<graphs>\S+) GiB for CUDAGraph memory"
)
CONSUMED = re.compile(
    HEAD + r"(?P<consumed>\S+) GiB for consumed memory \(weights \+ non-torch\), "
    r"(?P<activation>\S+) GiB for peak activation, and (?P<graphs>\S+) GiB for CUDAGraph memory"
)
ESTIMATE = re.compile(r"CUDA graph pool memory: \S+ GiB \(actual\), (\S+) GiB \(estimated\)")
NOT_APPLIED = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it"
ROUNDING_GIB = 0.011
"""Two printed amounts, each right to 0.005, may differ by this much from their true difference."""
PROFILE_GIB = 0.06
"""Largest gap in requested = weights + non-torch + activation + reserved graphs + pool, all rounded."""


def read_gpu_memory(log: str, release: Release, ranks: int) -> Memory:
    """Weights, activation, non-torch memory, graphs and KV pool.

    Raises EngineError on a missing line and on a negative amount, PodError when vLLM's memory profile does
    not add up: that is a race of its profiler, and the same start succeeds when tried again.
    """
    loads = find_all(log, WEIGHTS, "Model loading took … GiB and … seconds")
    pools = [number(match[1], "KV pool") for match in find_all(log, POOL, "Available KV cache memory: … GiB")]
    weights = [number(match[1], "weights") for match in loads]
    accounts = [_account(match, weights, release, log) for match in _accounting_lines(log, release)]
    _check_profile(accounts[0], pools[0])
    return Memory(
        device="cuda",
        weights=per_pod(weights, ranks, "weights"),
        activation=per_pod([account.activation for account in accounts], ranks, "peak activation"),
        non_torch=per_pod([account.non_torch for account in accounts], ranks, "non-torch memory"),
        graphs=per_pod([account.graphs for account in accounts], ranks, "CUDA graphs"),
        pool=per_pod(pools, ranks, "KV pool"),
        load_seconds=max(number(match[2], "load seconds") for match in loads),
    )


@dataclass(frozen=True, slots=True)
class _Account:
    """One rank's accounting line, GiB."""

    requested: float
    weights: float
    activation: float
    non_torch: float
    graphs: float
    estimate: float
    """Graphs reserved before they were captured."""


def _accounting_lines(log: str, release: Release) -> list[re.Match[str]]:
    if release.itemized:
        return find_all(log, ITEMIZED, "Actual usage is … GiB for weight, … for CUDAGraph memory")
    return find_all(log, CONSUMED, "Actual usage is … GiB for consumed memory (weights + non-torch), …")


def _account(match: re.Match[str], weights: list[float], release: Release, log: str) -> _Account:
    estimate = _applied_estimate(log)
    activation = number(match["activation"], "peak activation")
    if release.itemized:
        held = number(match["weights"], "weights")
        non_torch = number(match["non_torch"], "non-torch memory")
    else:
        held = weights[0]
        non_torch = _difference(number(match["consumed"], "consumed memory"), held, "non-torch memory")
        activation = _difference(activation, estimate, "peak activation")
    return _Account(
        requested=number(match["requested"], "requested memory"),
        weights=held,
        activation=activation,
        non_torch=non_torch,
        graphs=number(match["graphs"], "CUDA graphs"),
        estimate=estimate,
    )


def _applied_estimate(log: str) -> float:
    """The graphs that were reserved: the pool line's estimate, 0 without the line or when switched off."""
    match = ESTIMATE.search(log)
    if match is None or NOT_APPLIED in log:
        return 0.0
    return number(match[1], "estimated CUDA graphs")


def _difference(total: float, part: float, name: str) -> float:
    """total − part, at least 0; below what rounding explains it is an EngineError."""
    if total - part < -ROUNDING_GIB:
        raise EngineError(
            "an account is negative",
            where=f"start-up log: {name}",
            found=f"{total} − {part} GiB",
            expected="at least 0",
        )
    return max(0.0, round(total - part, 6))


def _check_profile(account: _Account, pool: float) -> None:
    parts = account.weights + account.non_torch + account.activation + account.estimate
    if abs(account.requested - parts - pool) > PROFILE_GIB:
        raise PodError(
            "vLLM's memory profile does not add up",
            where="start-up log: Available KV cache memory",
            found=f"{pool} GiB",
            expected=f"{account.requested} − {parts:.2f} GiB",
            remedy="Start it again; if it stays so, look for other processes on the GPU.",
        )
