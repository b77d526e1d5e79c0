"""vLLM's Prometheus text: the cache configuration, the KV gauge, counters.

The gauge `kv_cache_usage_perc` is 1 − free blocks / (blocks − 1): a share of the *pool* in use, counting a
part-filled block as a whole one. It says neither how many tokens are held nor how full the device is
(lessons 37, 38); a peak in GiB is this share times the pool's size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from lowbit_ray.errors import EngineError

__all__ = ["amount", "cache_config", "kv_usage", "sample"]

KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""Today's name and the one before it (lesson 35)."""
SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?$", re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def cache_config(text: str) -> dict[str, str]:
    """Labels of `vllm:cache_config_info`, the machine-readable part of the accounts (lesson 40).

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


def sample(text: str, *names: str) -> float:
    """The value of the first of `names` that is there, summed over its labels.

    Raises EngineError if none is there or a value is not a finite number: a metric that went missing must
    not read as zero.
    """
    for name in names:
        values = [match["value"] for match in SAMPLE.finditer(text) if match["name"] == name]
        if not values:
            continue
        try:
            total = math.fsum(float(value) for value in values)
        except ValueError:
            total = math.nan
        if not math.isfinite(total):
            raise EngineError("a metric is not a number", where=f"/metrics: {name}", found=", ".join(values))
        return total
    raise EngineError("the metrics lack a sample", where="/metrics", expected=" or ".join(names))


def kv_usage(text: str) -> float:
    """Share of the KV pool in use, 0 to 1, under either name of the gauge.

    Raises EngineError if neither is there, if it is no share, or if several engines or API servers report
    one each: no sum or mean of them is the pool's (lesson 36).
    """
    name = next((name for name in KV_USAGE if f"\n{name}" in f"\n{text}"), KV_USAGE[0])
    count = sum(match["name"] == name for match in SAMPLE.finditer(text))
    if count > 1:
        raise EngineError(
            "several engines report a KV gauge each", where=f"/metrics: {name}", found=count, expected=1
        )
    usage = sample(text, *KV_USAGE)
    if not 0 <= usage <= 1:
        raise EngineError(
            "the KV gauge is no share", where=f"/metrics: {name}", found=usage, expected="0 to 1"
        )
    return usage
