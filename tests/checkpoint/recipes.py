"""A candidate for every format that the package reads, written by hand to the format's layout."""

from __future__ import annotations

from typing import Any

from recipes_compressed import COMPRESSED, FP8_CHANNEL_PARTS, MXFP8_PARTS
from small_checkpoints import LAYERS, Recipe, kv_scales

__all__ = ["RECIPES"]

Config = dict[str, Any]


def quark(weight: Config, inputs: Config | None, **more: Any) -> Config:
    return {
        "quant_method": "quark",
        "global_quant_config": {
            "weight": weight,
            "input_tensors": inputs,
            "output_tensors": None,
            "bias": None,
        },
        "layer_quant_config": {},
        "layer_type_quant_config": {},
        "exclude": ["lm_head"],
        "export": {"kv_cache_group": [], "pack_method": "reorder"},
        **more,
    }


def quark_tensor(dtype: str, qscheme: str, **more: Any) -> Config:
    return {"dtype": dtype, "qscheme": qscheme, "is_dynamic": False, "symmetric": True, **more}


def modelopt(algorithm: str, **more: Any) -> Config:
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], **more}


def auto_round(bits: int, group: int | list[int], packing: str, **more: Any) -> Config:
    return {
        "quant_method": "auto-round",
        "bits": bits,
        "group_size": group,
        "packing_format": packing,
        **more,
    }


FP8_PARTS = "weight F8_E4M3 n,k; weight_scale F32; input_scale F32"
FP8_BLOCK_PARTS = "weight F8_E4M3 n,k; weight_scale_inv F32 n/128,k/128"
NVFP4_MODELOPT = "weight U8 n,k/2; weight_scale F8_E4M3 n,k/16; weight_scale_2 F32; input_scale F32"
GPTQ_PARTS = "qweight I32 k/8,n; qzeros I32 k/128,n/8; scales F16 k/128,n; g_idx I32 k"
AWQ_PARTS = "qweight I32 k,n/8; qzeros I32 k/128,n/8; scales F16 k/128,n"

Q8 = quark_tensor("fp8_e4m3", "per_tensor")
Q_MX4 = quark_tensor("fp4", "per_group", group_size=32, scale_format="e8m0")
QUARK_KV = {f"*{name}_proj": {"weight": Q8, "input_tensors": Q8, "output_tensors": Q8} for name in "kv"}
QUARK_EXPORT = {"kv_cache_group": ["*k_proj", "*v_proj"], "pack_method": "reorder"}
ATTENTION = [f"model.layers.{n}.self_attn.{p}_proj" for n in range(LAYERS) for p in "qkvo"]
MLP = [f"model.layers.{n}.mlp.{p}_proj" for n in range(LAYERS) for p in ("gate", "up", "down")]
MIXED_LAYERS = {
    **{name: {"quant_algo": "FP8"} for name in ATTENTION},
    **{name: {"quant_algo": "NVFP4", "group_size": 16} for name in MLP},
}
PAYLOAD_LAYERS = {
    **MIXED_LAYERS,
    **{name: {"quant_algo": "iq2_xs", "block_payload_bytes": 74} for name in MLP},
}
HF_QUANT = {
    "producer": {"name": "modelopt", "version": "0.39.0"},
    "quantization": {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": ["lm_head"],
    },
}


OTHERS = [
    Recipe(
        "fp8, tensor, static",
        FP8_PARTS,
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        "W8A8KV16",
    ),
    Recipe(
        "fp8, channel", FP8_CHANNEL_PARTS, {"quant_method": "fp8", "activation_scheme": "dynamic"}, "W8A8KV16"
    ),
    Recipe(
        "fp8, block",
        FP8_BLOCK_PARTS,
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
        "W8A8KV16",
        128,
    ),
    Recipe(
        "fbgemm_fp8",
        FP8_CHANNEL_PARTS,
        {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
        "W8A8KV16",
    ),
    Recipe(
        "gptq, 4 bits",
        GPTQ_PARTS,
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False},
        "W4A16KV16",
        128,
    ),
    Recipe(
        "gptq, 8 bits, channel",
        "qweight I32 k/4,n; qzeros I32 1,n/4; scales F16 1,n; g_idx I32 k",
        {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True, "desc_act": True},
        "W8A16KV16",
    ),
    Recipe(
        "gptq, quantize_config.json",
        GPTQ_PARTS,
        {"bits": 4, "group_size": 128, "sym": True, "desc_act": False},
        "W4A16KV16",
        128,
        file="quantize_config",
    ),
    Recipe(
        "awq",
        AWQ_PARTS,
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
        "W4A16KV16",
        128,
    ),
    Recipe(
        "awq, quant_config.json",
        AWQ_PARTS,
        {"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMM"},
        "W4A16KV16",
        128,
        file="quant_config",
    ),
    Recipe(
        "modelopt FP8, fp8 KV",
        FP8_PARTS,
        modelopt("FP8", kv_cache_scheme={"num_bits": 8, "type": "float", "dynamic": False}),
        "W8A8KV8",
        extra=kv_scales(("k_proj.k_scale", "v_proj.v_scale")),
    ),
    Recipe(
        "modelopt FP8, channel",
        "weight F8_E4M3 n,k; weight_scale F32 n",
        modelopt("FP8_PER_CHANNEL_PER_TOKEN"),
        "W8A8KV16",
    ),
    Recipe(
        "modelopt FP8, block",
        "weight F8_E4M3 n,k; weight_scale F32 n/128,1,k/128,1",
        modelopt("fp8_pb_wo"),
        "W8A8KV16",
        128,
    ),
    Recipe(
        "modelopt NVFP4, hf_quant_config.json",
        NVFP4_MODELOPT,
        HF_QUANT,
        "W4A4KV8",
        16,
        extra=kv_scales(("k_proj.k_scale", "v_proj.v_scale")),
        file="hf_quant_config",
    ),
    Recipe(
        "modelopt NVFP4, weight only", NVFP4_MODELOPT, modelopt("W4A16_NVFP4", group_size=16), "W4A16KV16", 16
    ),
    Recipe("modelopt MXFP8", MXFP8_PARTS, modelopt("MXFP8"), "W8A8KV16", 32),
    Recipe(
        "modelopt, mixed",
        lambda module: NVFP4_MODELOPT if "mlp" in module else FP8_PARTS,
        modelopt("MIXED_PRECISION", quantized_layers=MIXED_LAYERS),
        "W4A4KV16 mixed",
        16,
    ),
    Recipe(
        "modelopt, mixed with block payloads",
        lambda module: "weight U8 n,k/256,74" if "mlp" in module else FP8_PARTS,
        modelopt("MIXED_PRECISION", quantized_layers=PAYLOAD_LAYERS),
        "W2A16KV16 mixed",
        256,
    ),
    Recipe("mxfp8", MXFP8_PARTS, {"quant_method": "mxfp8", "ignored_layers": ["lm_head"]}, "W8A8KV16", 32),
    Recipe(
        "quark fp8, fp8 KV",
        FP8_PARTS,
        quark(Q8, Q8, layer_quant_config=QUARK_KV, export=QUARK_EXPORT),
        "W8A8KV8",
        extra=kv_scales(("k_proj.output_scale", "v_proj.output_scale")),
    ),
    Recipe(
        "quark int8",
        "weight I8 n,k; weight_scale F32 n",
        quark(quark_tensor("int8", "per_channel"), quark_tensor("int8", "per_tensor", is_dynamic=True)),
        "W8A8KV16",
    ),
    Recipe(
        "quark int4",
        "weight I32 k,n/8; weight_scale F16 k/128,n; weight_zero_point I32 k/128,n/8",
        quark(quark_tensor("uint4", "per_group", group_size=128, symmetric=False), None),
        "W4A16KV16",
        128,
    ),
    Recipe(
        "quark MXFP4",
        "weight U8 n,k/2; weight_scale U8 n,k/32",
        quark(Q_MX4, {**Q_MX4, "is_dynamic": True}),
        "W4A4KV16",
        32,
    ),
    Recipe(
        "auto-round int4, as gptq",
        GPTQ_PARTS,
        auto_round(
            4, 128, "auto_round:auto_gptq", sym=True, data_type="int", block_name_to_quantize="model.layers"
        ),
        "W4A16KV16",
        128,
    ),
    Recipe(
        "auto-round int4, as awq",
        AWQ_PARTS,
        auto_round(4, 128, "auto_round:auto_awq", sym=False),
        "W4A16KV16",
        128,
    ),
    Recipe(
        "auto-round fp8, block",
        FP8_BLOCK_PARTS,
        auto_round(8, [128, 128], "auto_round:fp8", data_type="fp", act_bits=8),
        "W8A8KV16",
        128,
    ),
    Recipe(
        "auto-round MXFP8",
        MXFP8_PARTS,
        auto_round(8, 32, "auto_round:llm_compressor", data_type="mx_fp", act_bits=8, act_data_type="mx_fp"),
        "W8A8KV16",
        32,
    ),
    Recipe(
        "fp_quant MXFP4",
        "qweight U8 n,k/2; scales U8 n,k/32; forward_hadamard_matrix BF16 32,32",
        {
            "quant_method": "fp_quant",
            "hadamard_group_size": 32,
            "forward_dtype": "mxfp4",
            "forward_method": "abs_max",
            "modules_to_not_convert": ["lm_head"],
        },
        "W4A4KV16",
        32,
    ),
    Recipe(
        "bitsandbytes nf4, nested",
        "weight U8 n*k/2,1; weight.absmax U8 n*k/64; weight.quant_map F32 16; weight.nested_absmax F32 n*k/16384; "
        "weight.nested_quant_map F32 256; weight.quant_state.bitsandbytes__nf4 U8 83",
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "load_in_8bit": False,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
        },
        "W4A16KV16",
        64,
    ),
    Recipe(
        "bitsandbytes int8",
        "weight I8 n,k; SCB F32 n; weight_format U8",
        {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["lm_head"]},
        "W8A16KV16",
    ),
    Recipe(
        "torchao int8",
        "_weight_qdata I8 n,k; _weight_scale F32 n,1; _weight_zero_point I8 n,1",
        {
            "quant_method": "torchao",
            "quant_type": {"default": {"_type": "Int8DynamicActivationInt8WeightConfig", "_data": {}}},
            "modules_to_not_convert": ["lm_head"],
        },
        "W8A8KV16",
    ),
    Recipe(
        "torchao int4, tiled",
        "_weight_qdata I32 n/8,k/128,32,4; _weight_scale_and_zero BF16 k/128,n,2",
        {
            "quant_method": "torchao",
            "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {}}},
        },
        "W4A16KV16",
    ),
]

RECIPES = [*COMPRESSED, *OTHERS]
