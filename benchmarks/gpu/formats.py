"""The candidates' formats, in the compressed-tensors layout, with torch on whatever device the weight lies.

FP8 W8A8: one float32 scale a row, activations quantized a token at run time, KV cache in FP8 with a scale a layer.
W4A16: int4 in groups, eight to an int32 word. Both round to nearest: the plainest method there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["FP8", "W4A16", "Format"]

FP8_LARGEST = 448.0
KV_SCALE = 0.02
"""Keys have a mean square of 1 after their norm, values about 1.3 of random weights: ±8.9 holds both."""
GROUP = 128


@dataclass(frozen=True, slots=True)
class Format:
    """How one linear layer's weight is stored."""

    quantize: Callable[[Tensor], dict[str, Tensor]]
    """[N, K] → tensors by what follows the module's name."""
    config: dict[str, object]
    """config.json's quantization_config."""
    kv_scales: bool
    """Whether each attention layer has a k and a v scale."""


def _fp8(weight: Tensor) -> dict[str, Tensor]:
    wide = weight.float()
    scale = (wide.abs().amax(1, keepdim=True) / FP8_LARGEST).clamp_min(1e-12)
    return {
        "weight": (wide / scale).clamp(-FP8_LARGEST, FP8_LARGEST).to(torch.float8_e4m3fn),
        "weight_scale": scale,
    }


def _int4(weight: Tensor) -> dict[str, Tensor]:
    rows, columns = weight.shape
    groups = weight.float().view(rows, columns // GROUP, GROUP)
    scale = (groups.abs().amax(2, keepdim=True) / 7.5).clamp_min(1e-12).to(torch.bfloat16)
    values = (groups / scale.float()).round().clamp(-8, 7).to(torch.int64).view(rows, columns // 8, 8) + 8
    words = (values << (4 * torch.arange(8, device=weight.device))).sum(2)
    return {
        "weight_packed": torch.where(words < 2**31, words, words - 2**32).to(torch.int32),
        "weight_scale": scale.squeeze(2),
        "weight_shape": torch.tensor([rows, columns], dtype=torch.int64),
    }


def _config(
    layout: str, weights: dict[str, object], inputs: dict[str, object] | None, kv: dict[str, object] | None
) -> dict[str, object]:
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": inputs,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "kv_cache_scheme": kv,
        "config_groups": {"group_0": {**group, "format": layout}},
    }


def _args(
    bits: int, kind: str, strategy: str, *, dynamic: bool = False, group: int | None = None
) -> dict[str, object]:
    return {
        "num_bits": bits,
        "type": kind,
        "symmetric": True,
        "strategy": strategy,
        "group_size": group,
        "dynamic": dynamic,
    }


FP8 = Format(
    _fp8,
    _config(
        "float-quantized",
        _args(8, "float", "channel"),
        _args(8, "float", "token", dynamic=True),
        _args(8, "float", "tensor"),
    ),
    kv_scales=True,
)
W4A16 = Format(
    _int4, _config("pack-quantized", _args(4, "int", "group", group=GROUP), None, None), kv_scales=False
)
