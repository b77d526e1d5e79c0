"""A workload's peak memory in the engine's own accounts, or by the device's count where it keeps none.

peak = weights + KV in use + other: weights and other from the start-up log, KV in use = the
largest `vllm:kv_cache_usage_perc` seen during the workload × the KV pool.
"""

from __future__ import annotations

import math
from typing import Protocol

from lowbit_ray.errors import EngineAnswerError, InfraError
from lowbit_ray.measure.workload import WorkloadRun
from lowbit_ray.rules import Workload, _Described

__all__ = ["Accounts", "PeakMemory", "peak_memory"]

GIB = 2**30


class Accounts(Protocol):
    """The part of an engine's start-up accounts that a peak needs."""

    @property
    def weights_gib(self) -> float: ...

    @property
    def other_gib(self) -> float: ...

    @property
    def kv_cache_gib(self) -> float: ...


class PeakMemory(_Described):
    """Peak memory of one workload, GiB; parts are None where the engine keeps no accounts."""

    device_peak_gib: float | None
    """The device's own count (NVML), the pool wholly allocated; None without a device to ask."""
    kv_bytes_per_token: int | None
    """KV in use over the tokens of a full load: a cross-check against the pool's bytes a token."""
    kv_gib: float | None
    kv_usage: float | None
    """Largest share of the KV pool in use."""
    other_gib: float | None
    """Activations, non-torch and CUDA graphs."""
    peak_gib: float
    weights_gib: float | None


def peak_memory(
    accounts: Accounts | None, run: WorkloadRun, workload: Workload, *, device_peak_gib: float | None = None
) -> PeakMemory:
    """The peak of `run`.

    Raises EngineAnswerError where an engine with accounts did not say how full its KV pool was, InfraError
    where there is neither an account nor a device's count.
    """
    if accounts is None:
        if device_peak_gib is None or not (math.isfinite(device_peak_gib) and device_peak_gib > 0):
            raise InfraError(
                "no peak memory: the engine keeps no accounts and the device was not asked",
                where=f"workload {run.name}",
                found=device_peak_gib,
            )
        return PeakMemory(
            device_peak_gib=device_peak_gib,
            kv_bytes_per_token=None,
            kv_gib=None,
            kv_usage=run.kv_usage,
            other_gib=None,
            peak_gib=device_peak_gib,
            weights_gib=None,
        )
    if run.kv_usage is None or not 0 < run.kv_usage <= 1:
        raise EngineAnswerError(
            "the engine did not say how full its KV pool was",
            where="/metrics: vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc",
            found=run.kv_usage,
            expected="more than 0, at most 1, during the workload",
        )
    kv_gib = run.kv_usage * accounts.kv_cache_gib
    tokens = workload.max_concurrency * (workload.input_len + workload.output_len)
    return PeakMemory(
        device_peak_gib=device_peak_gib,
        kv_bytes_per_token=round(kv_gib * GIB / tokens),
        kv_gib=kv_gib,
        kv_usage=run.kv_usage,
        other_gib=accounts.other_gib,
        peak_gib=accounts.weights_gib + kv_gib + accounts.other_gib,
        weights_gib=accounts.weights_gib,
    )
