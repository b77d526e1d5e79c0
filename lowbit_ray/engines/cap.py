"""A hard cap on memory: what an engine is told to use, and what the device leaves it.

On a GPU a filler process leaves `cap_gib` free, and the engine is told to plan for `budget_gib`: the
difference is for the device's context and for graphs that vLLM does not reserve (the rules' `context_gib`). On a CPU
peaks are weights + KV only, so the same budget becomes the size of the KV pool.
"""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from lowbit_ray.errors import ConfigError
from lowbit_ray.rules import Rules

__all__ = ["Cap"]

GIB = 2**30
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Cap(BaseModel):
    """One hard cap."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget_gib: Positive
    """The checked peak times the rules' factor."""
    cap_gib: Positive
    """What stays free on the pod for the engine: the budget and a context on each device."""
    total_gib: Positive
    """The pod's whole memory, all of its GPUs together."""
    max_model_len: Annotated[int, Field(ge=1)] | None = None
    """Longest request that will be made; vLLM refuses a pool that cannot hold one of its max_model_len."""
    weights_gib: Positive | None = None
    """Weights held, known from the uncapped run; the CPU's twin needs it."""
    kv_block_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes of one KV block, as the uncapped run's accounts say; 0 for no rounding."""

    @classmethod
    def of_peak(
        cls,
        peak_gib: float,
        *,
        rules: Rules,
        total_gib: float,
        devices: int = 1,
        max_model_len: int | None = None,
        weights_gib: float | None = None,
        kv_block_bytes: int = 0,
    ) -> Self:
        """The cap that the rules set on an engine whose largest checked peak was `peak_gib`.

        Each of `devices` has a context of its own, so that each gets the rules' share for it.
        """
        return cls(
            budget_gib=rules.engine.budget_gib(peak_gib),
            cap_gib=rules.engine.cap_gib(peak_gib, devices),
            total_gib=total_gib,
            max_model_len=max_model_len,
            weights_gib=weights_gib,
            kv_block_bytes=kv_block_bytes,
        )

    @property
    def utilization(self) -> float:
        """vLLM's gpu_memory_utilization: the budget's share, not the cap's, of each GPU."""
        return min(1.0, self.budget_gib / self.total_gib)

    @property
    def kv_pool_bytes(self) -> int:
        """The CPU's twin: the budget less the weights, in whole blocks, and the block vLLM never hands out.

        Whole blocks are rounded up, as the peak is: a workload that held n blocks must be able to hold n.
        """
        if self.weights_gib is None:
            raise ConfigError("a cap on a CPU needs the weights' size", where="Cap.weights_gib")
        room = (self.budget_gib - self.weights_gib) * GIB
        if room <= 0:
            raise ConfigError(
                "the budget leaves nothing for the KV cache",
                where="Cap.budget_gib",
                found=f"{self.budget_gib:.3f} GiB",
                expected=f"more than the weights' {self.weights_gib:.3f} GiB",
            )
        if not self.kv_block_bytes:
            return int(room)
        return (math.ceil(room / self.kv_block_bytes) + 1) * self.kv_block_bytes
