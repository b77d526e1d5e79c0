"""Memory of a vLLM server on a CPU.

The CPU build prints no GiB but those of the KV pool. Its weights are the bytes of the checkpoint's tensors,
and its peaks leave out the runtime: activations and libraries are in no account.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lowbit_ray.engines.accounts.lines import find, number
from lowbit_ray.engines.accounts.memory import Memory
from lowbit_ray.engines.accounts.metrics import amount
from lowbit_ray.errors import EngineError

__all__ = ["read_cpu_memory"]

GIB = 2**30
LOAD = re.compile(r"Loading weights took ([\d.]+) seconds")


def read_cpu_memory(log: str, config: Mapping[str, str], stored_gib: float | None) -> Memory:
    """Weights and KV pool; EngineError where either is not known."""
    if stored_gib is None or stored_gib <= 0:
        raise EngineError(
            "a server on a CPU prints no account of its weights",
            where="stored_gib",
            found=stored_gib,
            expected="> 0",
        )
    return Memory(
        device="cpu",
        weights=stored_gib,
        activation=None,
        non_torch=None,
        graphs=0.0,
        pool=amount(config, "kv_cache_memory_bytes") / GIB,
        load_seconds=number(find(log, LOAD, "Loading weights took … seconds")[1], "load seconds"),
    )
