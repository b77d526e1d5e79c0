"""Memory of one server, as either kind of device tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Memory"]


@dataclass(frozen=True, slots=True)
class Memory:
    """GiB of the pod, all ranks together."""

    device: Literal["cuda", "cpu"]
    weights: float
    activation: float | None
    """None where the engine does not say."""
    non_torch: float | None
    """None where the engine does not say."""
    graphs: float
    pool: float
    load_seconds: float

    @property
    def other(self) -> float:
        """What a peak has beside weights and KV, as far as the engine says."""
        return round((self.activation or 0.0) + (self.non_torch or 0.0) + self.graphs, 6)
