"""The cache configuration that vLLM publishes once, as labels of a metric.

What moves while a workload runs (KV in use, requests, prefix-cache hits) is read by `measure/gauges.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from lowbit_ray.errors import EngineError

__all__ = ["amount", "cache_config"]

SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?$", re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def cache_config(text: str) -> dict[str, str]:
    """Labels of `vllm:cache_config_info`, the machine-readable part of the accounts.

    Raises EngineError if it is missing, or if there is more than one engine behind the address.
    """
    found = [match for match in SAMPLE.finditer(text) if match["name"] == "vllm:cache_config_info"]
    if len(found) != 1:
        raise EngineError(
            "the metrics do not have the cache configuration of exactly one engine",
            where="/metrics: vllm:cache_config_info",
            found=f"{len(found)} samples",
            expected="1",
        )
    return dict(LABEL.findall(found[0]["labels"] or ""))


def amount(config: Mapping[str, str], name: str) -> float:
    """A label of the cache configuration as a number, at least 0; EngineError if it is none."""
    text = config.get(name, "missing")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise EngineError(
            "the cache configuration lacks an amount",
            where=f"/metrics: vllm:cache_config_info: {name}",
            found=text,
        )
    return value
