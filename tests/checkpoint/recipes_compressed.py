"""Candidates in every compressed-tensors format, written by hand to the layout."""

from __future__ import annotations

from typing import Any

from small_checkpoints import Recipe, kv_scales

__all__ = ["COMPRESSED", "compressed", "int_group"]

Config = dict[str, Any]

INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
INT8_TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
INT8_STATIC = {**INT8, "strategy": "tensor", "symmetric": False}
FP8_CHANNEL = {**INT8, "type": "float"}
FP8_TENSOR = {**FP8_CHANNEL, "strategy": "tensor"}
FP8_TOKEN = {**INT8_TOKEN, "type": "float"}
FP8_BLOCK = {**FP8_CHANNEL, "strategy": "block", "block_structure": [128, 128]}
FP8_GROUP = {**FP8_TOKEN, "strategy": "group", "group_size": 128}
NVFP4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
MXFP4 = {**NVFP4, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
MXFP8 = {**MXFP4, "num_bits": 8}


def int_group(bits: int, group: int, symmetric: bool = True) -> Config:
    return {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": group}


def compressed(weights: Config | None, inputs: Config | None, format_: str, **more: Any) -> Config:
    """A compressed-tensors config with one group."""
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": inputs,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": format_,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        **more,
    }


def preset(name: str) -> Config:
    return {**compressed(None, None, "pack-quantized"), "config_groups": {name: ["Linear"]}}


KV8 = {**FP8_TENSOR}
FP8_CHANNEL_PARTS = "weight F8_E4M3 n,k; weight_scale F32 n,1"
INT4_PARTS = "weight_packed I32 n,k/8; weight_shape I64 2; weight_scale BF16 n,k/128"
NVFP4_PARTS = "weight_packed U8 n,k/2; weight_scale F8_E4M3 n,k/16; weight_global_scale F32 1"
MXFP8_PARTS = "weight F8_E4M3 n,k; weight_scale U8 n,k/32"


def mixed_groups() -> Config:
    """int8 for attention by regular expression, int4 for the rest by class."""
    config = compressed(int_group(4, 128), None, "mixed-precision")
    first = {**config["config_groups"]["group_0"], "format": "pack-quantized"}
    second = {
        "targets": ["re:.*self_attn.*"],
        "weights": INT8,
        "input_activations": INT8_TOKEN,
        "format": "int-quantized",
    }
    return {**config, "config_groups": {"group_0": first, "group_1": second}}


COMPRESSED = [
    Recipe(
        "compressed-tensors int8",
        "weight I8 n,k; weight_scale F32 n,1",
        compressed(INT8, INT8_TOKEN, "int-quantized"),
        "W8A8KV16",
    ),
    Recipe(
        "compressed-tensors int8, static inputs",
        "weight I8 n,k; weight_scale F32 n,1; input_scale F32 1; input_zero_point I8 1",
        compressed(INT8, INT8_STATIC, "int-quantized"),
        "W8A8KV16",
    ),
    Recipe(
        "compressed-tensors int4",
        "weight_packed I32 n,k/8; weight_shape I64 2; weight_scale BF16 n,k/32",
        compressed(int_group(4, 32), None, "pack-quantized"),
        "W4A16KV16",
        32,
    ),
    Recipe(
        "compressed-tensors int4, asymmetric",
        f"{INT4_PARTS}; weight_zero_point I32 n/8,k/128",
        compressed(int_group(4, 128, symmetric=False), None, "pack-quantized"),
        "W4A16KV16",
        128,
    ),
    Recipe(
        "compressed-tensors int3",
        "weight_packed I32 n,k/10; weight_shape I64 2; weight_scale BF16 n,k/64",
        compressed(int_group(3, 64), None, "pack-quantized"),
        "W3A16KV16",
        64,
    ),
    Recipe(
        "compressed-tensors int8, packed",
        "weight_packed I32 n,k/4; weight_shape I64 2; weight_scale BF16 n,1",
        compressed(INT8, None, "pack-quantized"),
        "W8A16KV16",
    ),
    Recipe(
        "compressed-tensors int4 with int8 inputs",
        INT4_PARTS,
        compressed(int_group(4, 128), INT8_TOKEN, "pack-quantized"),
        "W4A8KV16",
        128,
    ),
    Recipe(
        "compressed-tensors int4 with fp8 inputs",
        INT4_PARTS,
        compressed(int_group(4, 128), FP8_TOKEN, "pack-quantized"),
        "W4A8KV16",
        128,
    ),
    Recipe(
        "compressed-tensors fp8, dynamic",
        FP8_CHANNEL_PARTS,
        compressed(FP8_CHANNEL, FP8_TOKEN, "float-quantized"),
        "W8A8KV16",
    ),
    Recipe(
        "compressed-tensors fp8, static, fp8 KV",
        "weight F8_E4M3 n,k; weight_scale F32 1; input_scale F32 1",
        compressed(FP8_TENSOR, FP8_TENSOR, "float-quantized", kv_cache_scheme=KV8),
        "W8A8KV8",
        extra=kv_scales(),
    ),
    Recipe(
        "compressed-tensors fp8, block",
        "weight F8_E4M3 n,k; weight_scale BF16 n/128,k/128",
        compressed(FP8_BLOCK, FP8_GROUP, "float-quantized"),
        "W8A8KV16",
        128,
    ),
    Recipe(
        "compressed-tensors fp8, weight only",
        FP8_CHANNEL_PARTS,
        compressed(FP8_CHANNEL, None, "naive-quantized"),
        "W8A16KV16",
    ),
    Recipe(
        "compressed-tensors NVFP4",
        f"{NVFP4_PARTS}; input_global_scale F32 1",
        compressed(NVFP4, {**NVFP4, "dynamic": "local"}, "nvfp4-pack-quantized"),
        "W4A4KV16",
        16,
    ),
    Recipe(
        "compressed-tensors NVFP4A16",
        NVFP4_PARTS,
        compressed(NVFP4, None, "nvfp4-pack-quantized"),
        "W4A16KV16",
        16,
    ),
    Recipe(
        "compressed-tensors MXFP4",
        "weight_packed U8 n,k/2; weight_scale U8 n,k/32",
        compressed(MXFP4, {**MXFP4, "dynamic": True}, "mxfp4-pack-quantized"),
        "W4A4KV16",
        32,
    ),
    Recipe(
        "compressed-tensors MXFP8",
        MXFP8_PARTS,
        compressed(MXFP8, {**MXFP8, "dynamic": True}, "mxfp8-quantized"),
        "W8A8KV16",
        32,
    ),
    Recipe("compressed-tensors, preset by name", INT4_PARTS, preset("w4a16"), "W4A16KV16", 128),
    Recipe(
        "compressed-tensors, two groups",
        lambda module: "weight I8 n,k; weight_scale F32 n,1" if "self_attn" in module else INT4_PARTS,
        mixed_groups(),
        "W4A16KV16 mixed",
        128,
    ),
]
