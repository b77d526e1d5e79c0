"""Verdicts by release, from the table."""

from __future__ import annotations

from typing import Any

import pytest
from recipes import RECIPES
from recipes_compressed import INT8, INT8_TOKEN, compressed, int_group

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.executed import kv_dtype_bits
from lowbit_ray.checkpoint.formats import READERS, plan_for
from lowbit_ray.checkpoint.patterns import Matcher
from lowbit_ray.checkpoint.servable import Servable, servable

RELEASES = ["0.25.1", "0.28.0", "0.30.0", "0.33.0"]
KV_CACHE_DTYPES = (
    *("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4"),
    *("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
    *("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head", "nvfp4_ds_mla", "nvfp4_4over6"),
    *("octave_k3v4", "octave_k3v3", "octave_k3v3_compact", "ultraquant_4bit"),
)
"""What vLLM's `--kv-cache-dtype` may be in 0.25.1 to 0.33, plugins left out."""
KV = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}


def judge(config: dict[str, Any], method: str = "") -> tuple[Servable, ...]:
    method = method or config["quant_method"]
    source = QuantizationSource("config.json", "quantization_config", config, method)
    return servable(plan_for(source, Matcher([])))


def verdicts(config: dict[str, Any], method: str = "") -> list[str]:
    return [release.verdict for release in judge(config, method)]


def gptq(**changes: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False, **changes}


def test_a_plain_checkpoint_is_served_by_all() -> None:
    found = servable(None)
    assert [release.release for release in found] == RELEASES
    assert {release.verdict for release in found} == {"yes"}


def test_bitsandbytes_left_in_0_28() -> None:
    found = judge({"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert [release.verdict for release in found] == ["yes", "no", "no", "no"]
    assert "vllm-bnb-plugin" in found[1].reasons[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["yes"] * 4),
        ({"desc_act": True}, ["yes", "yes", "no", "no"]),
        ({"desc_act": True, "group_size": -1}, ["yes"] * 4),
        ({"bits": 8}, ["yes"] * 4),
        ({"bits": 3}, ["no"] * 4),
        ({"sym": False}, ["no"] * 4),
    ],
)
def test_gptqs_settings_decide_by_release(changes: dict[str, Any], expected: list[str]) -> None:
    assert verdicts(gptq(**changes)) == expected


def test_act_order_by_pattern_counts_too() -> None:
    assert verdicts(gptq(dynamic={r"+:.*mlp.*": {"desc_act": True}})) == ["yes", "yes", "no", "no"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("group", "no"), ("dynamic", "no"), (True, "no"), ("weight", "yes"), ("static", "yes"), (None, "yes")],
)
def test_compressed_tensors_act_order_from_0_30(order: object, expected: str) -> None:
    config = compressed({**int_group(4, 128), "actorder": order}, None, "pack-quantized")
    assert verdicts(config) == ["yes", "yes", expected, expected]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "yes"),
        ({"strategy": "attn_head"}, "yes"),
        ({"num_bits": 4}, "no"),
        ({"type": "int"}, "no"),
        ({"strategy": "channel"}, "no"),
    ],
)
def test_a_kv_scheme_is_served_as_an_8_bit_float_alone(changes: dict[str, Any], expected: str) -> None:
    assert (
        verdicts(compressed(INT8, INT8_TOKEN, "int-quantized", kv_cache_scheme={**KV, **changes}))
        == [expected] * 4
    )


def test_awq_is_served_with_4_bits() -> None:
    assert verdicts({"quant_method": "awq", "bits": 4, "group_size": 128}) == ["yes"] * 4
    assert verdicts({"quant_method": "awq", "bits": 8, "group_size": 128}) == ["no"] * 4


def test_torchao_needs_a_look() -> None:
    config = {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}
    assert verdicts(config) == ["review"] * 4


def test_block_payloads_are_read_from_0_33() -> None:
    layers = {"model.layers.0.mlp.up_proj": {"quant_algo": "iq2_xs"}}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert verdicts(config) == ["no", "no", "no", "review"]


def test_nvfp4_says_how_it_runs_on_hopper() -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.name == "compressed-tensors NVFP4")
    assert "runs as W4A16 on Hopper" in judge(recipe.quantization)[0].reasons


def test_every_reader_has_a_line_in_the_table() -> None:
    for method in READERS:
        configs = [
            recipe.quantization for recipe in RECIPES if recipe.quantization.get("quant_method") == method
        ]
        for config in configs[:1]:
            assert not any(
                "not in the table" in why for release in judge(config, method) for why in release.reasons
            )


def test_every_kv_dtype_has_its_width() -> None:
    assert [dtype for dtype in KV_CACHE_DTYPES if kv_dtype_bits(dtype) is None] == ["auto"]
