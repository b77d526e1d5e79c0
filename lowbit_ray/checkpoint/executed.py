"""The precision an engine really computes in, from what it says when it starts.

A checkpoint's numbers are a request: NVFP4 on Hopper runs as W4A16 (Marlin), FP8 below compute capability
8.9 as W8A16, a KV scheme counts only if the command line leaves it alone, and a plain checkpoint may be
quantized while it loads. The engine-start line, the chosen kernels and the KV pool's size tell. What they
mean stands in `data/execution.yaml`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from lowbit_ray.checkpoint.precision import Precision

__all__ = ["ExecutedPrecision", "executed_precision", "kv_dtype_bits"]

TABLE = Path(__file__).parent / "data" / "execution.yaml"
KERNEL = re.compile(
    r"(?:Selected|Using) '?(?P<kernel>\w+)'? for "
    r"(?P<use>\w*(?:Linear|Int8|Fp8|FP8|WNA|W4A8|NVFP4|MXFP|NvFp4)\w*|mixed-precision linear)"
)
MOE_BACKEND = re.compile(r"Using '?(?P<kernel>\w+)'? (?P<use>\w*MoE) backend", re.IGNORECASE)
ENGINE_LINE = re.compile(r"Initializing a V1 LLM engine \(v(?P<release>[^)]*)\) with config: (?P<config>.*)")
MAX_LOG = 8 * 2**20
"""Characters of a log that are looked at; the start-up lines come first."""


class ExecutedPrecision(BaseModel):
    """What the engine's own words say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: int
    """Bits of a weight as it is held on the device."""
    activations: int
    """Bits of the linear layers' inputs inside the kernels."""
    kv: float
    """Mean bits of a KV-cache element."""
    label: str
    """`W4A16KV8`."""
    kernels: tuple[str, ...]
    """`kernel for use`, in the order of the log."""
    kv_cache_dtype: str
    """As the engine names it; `auto` when nothing is known."""
    reasons: tuple[str, ...]
    """Why this differs from what was read; empty when it does not."""


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    return table


def kv_dtype_bits(dtype: str) -> float | None:
    """Mean bits of a cache element of vLLM's `--kv-cache-dtype`; None for `auto` and for unknown names."""
    bits: float | None = _table()["kv_bits"].get(dtype)
    return bits


def executed_precision(
    read: Precision,
    kv_cache_dtype: str | None,
    log_text: str,
    *,
    kv_bytes_per_token: float | None = None,
    bf16_kv_bytes_per_token: float | None = None,
) -> ExecutedPrecision:
    """What runs, given what was read.

    `kv_cache_dtype` is the label `cache_dtype` of `vllm:cache_config_info` where it is known, else the log's
    engine-start line counts. The two sizes, pool bytes / pool tokens and what BF16 would need, decide where
    the engine leaves it open (`auto`).
    """
    text = log_text[:MAX_LOG]
    started = ENGINE_LINE.search(text)
    config = started["config"] if started else ""
    kernels = _kernels(text)
    weights, activations, reasons = _compute(read, config, kernels, text)
    dtype = kv_cache_dtype or _field(config, "kv_cache_dtype") or "auto"
    measured = None
    if kv_bytes_per_token and bf16_kv_bytes_per_token:
        measured = 16 * kv_bytes_per_token / bf16_kv_bytes_per_token
    kv, why = _kv(read, dtype, measured)
    return ExecutedPrecision(
        weights=weights,
        activations=activations,
        kv=kv,
        label=f"W{weights}A{activations}KV{kv:g}",
        kernels=kernels,
        kv_cache_dtype=dtype,
        reasons=(*reasons, *why),
    )


def _kernels(text: str) -> tuple[str, ...]:
    found = [f"{match['kernel']} for {match['use']}" for match in KERNEL.finditer(text)]
    found += [f"{match['kernel']} for {match['use']}" for match in MOE_BACKEND.finditer(text)]
    return tuple(dict.fromkeys(found))[:50]


def _field(config: str, name: str) -> str | None:
    match = re.search(rf"(?:^|[ ,]){name}=([\w.-]+)", config)
    return match[1] if match else None


def _compute(
    read: Precision, config: str, kernels: tuple[str, ...], text: str
) -> tuple[int, int, tuple[str, ...]]:
    """Weight bits, activation bits, and why they differ from what was read."""
    table = _table()
    weights, activations = read.weights, read.activations
    reasons: list[str] = []
    online = table["online"].get(_field(config, "quantization")) if read.method is None else None
    if online is not None:
        weights, activations = online["weights"], online["activations"]
        reasons.append(f"quantized while it loads: quantization={_field(config, 'quantization')}")
    for kernel in kernels:
        if activations < 16 and any(part in kernel for part in table["weight_only_kernels"]):
            activations = 16
            reasons.append(f"computes with 16-bit activations: {kernel}")
        if weights < 16 and any(part in kernel for part in table["dequantized_kernels"]):
            weights = 16
            reasons.append(f"holds 16-bit weights: {kernel}")
    for line in table["weight_only_lines"]:
        if activations < 16 and line in text:
            activations = 16
            reasons.append(f"computes with 16-bit activations: the GPU {line}")
    return weights, activations, tuple(reasons)


def _kv(read: Precision, dtype: str, measured: float | None) -> tuple[float, tuple[str, ...]]:
    """KV bits, and why they differ from what was read."""
    bits = kv_dtype_bits(dtype)
    if bits is None and measured is not None:
        # scales beside the elements add a little; the nearest width that engines have is meant
        bits = min((16.0, 8.0, 6.0, 4.0, 3.5, 3.0), key=lambda width: abs(width - measured))
        return bits, () if bits == read.kv else (f"the pool holds {measured:.2f} bits an element",)
    if bits is None:
        follows = dtype == "auto" and read.method in _table()["auto_follows_checkpoint"]
        bits = float(read.kv) if follows else 16.0
    return bits, () if bits == read.kv else (f"kv_cache_dtype={dtype}",)
