"""config.json against the source's: what may differ, what may not, and RoPE in its spellings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from small_checkpoints import base_config

from lowbit_ray.checkpoint import architecture
from lowbit_ray.checkpoint.architecture import compare_architecture
from lowbit_ray.checkpoint.rope import read_rope

OLD = base_config()
NEW = {
    key: value for key, value in OLD.items() if key not in ("rope_theta", "rope_scaling", "torch_dtype")
} | {
    "dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "head_dim": 64,
    "attention_bias": False,
    "mlp_bias": False,
    "pretraining_tp": 1,
    "transformers_version": "5.19.0",
}
"""OLD as transformers 5 writes it."""

QWEN35 = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 5120,
        "num_hidden_layers": 8,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_value_heads": 48,
        "rope_parameters": {
            "rope_theta": 10000000,
            "rope_type": "default",
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
            "mrope_interleaved": True,
        },
    },
    "vision_config": {"depth": 27, "hidden_size": 1152},
}


def fields(source: dict[str, Any], candidate: dict[str, Any]) -> list[str]:
    return [finding.field for finding in compare_architecture(source, candidate)]


def deep(config: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(config))
    return copy


def test_both_generations_of_transformers_write_the_same_model() -> None:
    assert fields(OLD, NEW) == []
    assert fields(NEW, OLD) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 512),
        ("vocab_size", 1000),
        ("num_hidden_layers", 3),
        ("num_key_value_heads", 4),
        ("rms_norm_eps", 1e-6),
        ("hidden_act", "gelu"),
        ("max_position_embeddings", 4096),
        ("eos_token_id", 3),
        ("architectures", ["MistralForCausalLM"]),
        ("model_type", "mistral"),
        ("attention_bias", True),
        ("head_dim", 128),
        ("use_sliding_window", True),
        ("sliding_window", 128),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("surprise", 1),
    ],
)
def test_another_value_is_named_with_found_and_expected(key: str, value: object) -> None:
    finding = compare_architecture(OLD, {**OLD, key: value})[0]
    assert (finding.file, finding.field, finding.rule) == ("config.json", key, "configuration")
    assert finding.found == str(value)
    assert finding.breaks


@pytest.mark.parametrize(
    "key", [key for key in OLD if key not in ("torch_dtype", "rope_scaling", "rope_theta")]
)
def test_a_field_that_is_gone_is_named(key: str) -> None:
    candidate = {name: value for name, value in OLD.items() if name != key}
    # a missing tie_word_embeddings means tied, which drops the source's own head
    assert fields(OLD, candidate) == [key]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("torch_dtype", "float16"),
        ("transformers_version", "4.0"),
        ("use_cache", False),
        ("quantization_config", {"quant_method": "fp8"}),
        ("pad_token_id", 7),
        ("eos_token_id", [2]),
        ("num_key_value_heads", 2.0),
        ("layer_types", ["full_attention", "full_attention"]),
        ("head_dim", 64),
        ("sliding_window", None),
    ],
)
def test_what_may_differ_or_means_the_same_is_no_finding(key: str, value: object) -> None:
    assert fields(OLD, {**OLD, key: value}) == []


def test_true_is_not_one() -> None:
    assert fields(OLD, {**OLD, "pretraining_tp": True}) == ["pretraining_tp"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auto_map", {"AutoModelForCausalLM": "modeling.Model"}),
        ("approximate_experts", True),
        ("quantization_config.transform_config", {"config_groups": {"r1": {}}}),
        ("quantization_config.sparsity_config", {"format": "sparse-24-bitmask", "targets": ["Linear"]}),
        ("compression_config.transform_config.expert_substitution", {"layers": [1]}),
        ("custom_pipelines", {"x": {}}),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_keys_that_change_what_is_executed_are_refused_by_name(key: str, value: object, nested: bool) -> None:
    source, candidate = deep(QWEN35), deep(QWEN35)
    scope: dict[str, Any] = candidate["text_config"] if nested else candidate
    *parents, last = key.split(".")
    for parent in parents:
        scope = scope.setdefault(parent, {})
    scope[last] = value
    place = f"text_config.{key}" if nested else key
    refused = [finding for finding in compare_architecture(source, candidate) if finding.rule == "execution"]
    assert [finding.field for finding in refused] == [place]
    assert refused[0].summary.startswith("refused: it ")


def test_every_refused_key_says_why() -> None:
    table = yaml.safe_load(architecture.TABLE.read_text())
    assert all(reason for reason in table["refused"].values())


def test_a_sources_own_remote_code_is_no_excuse() -> None:
    both = {**OLD, "auto_map": {"AutoConfig": "x.Y"}}
    assert fields(both, both) == ["auto_map"]


@pytest.mark.parametrize("scope", ["text_config", "vision_config"])
def test_multimodal_configs_are_compared_part_by_part(scope: str) -> None:
    candidate = deep(QWEN35)
    candidate[scope]["hidden_size"] = 1
    assert fields(QWEN35, candidate) == [f"{scope}.hidden_size"]


@pytest.mark.parametrize(
    ("top", "text", "fine"),
    [
        (False, None, True),
        (None, False, True),
        (False, False, True),
        (True, None, False),
        (None, None, False),
        (False, True, False),
    ],
)
def test_a_tied_head_may_be_said_at_either_level(top: bool | None, text: bool | None, fine: bool) -> None:
    candidate = deep(QWEN35)
    del candidate["tie_word_embeddings"]
    for scope, value in ((candidate, top), (candidate["text_config"], text)):
        if value is not None:
            scope["tie_word_embeddings"] = value
    assert (compare_architecture(QWEN35, candidate) == ()) == fine


def test_layer_types_that_follow_from_the_interval_are_equal() -> None:
    candidate = deep(QWEN35)
    candidate["text_config"]["layer_types"] = (["linear_attention"] * 3 + ["full_attention"]) * 2
    assert fields(QWEN35, candidate) == []


def test_a_hybrids_rope_is_compared_inside_text_config() -> None:
    candidate = deep(QWEN35)
    candidate["text_config"]["rope_parameters"]["partial_rotary_factor"] = 0.5
    assert fields(QWEN35, candidate) == ["text_config.partial_rotary_factor"]


def test_a_hybrids_rope_in_the_old_spelling_is_equal() -> None:
    candidate = deep(QWEN35)
    text = candidate["text_config"]
    rope = text.pop("rope_parameters")
    text["rope_theta"] = rope.pop("rope_theta")
    text["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    text["rope_scaling"] = {**rope, "type": "mrope"}
    del text["rope_scaling"]["rope_type"]
    assert fields(QWEN35, candidate) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rope_theta": 500000.0}, "rope_theta"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "factor"),
        ({"rope_scaling": "linear"}, "rope_type"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}, "rope_theta"),
    ],
)
def test_another_rope_is_found_whatever_its_spelling(change: dict[str, Any], field: str) -> None:
    assert field in fields(OLD, {**OLD, **change})


def test_two_spellings_in_one_config_must_agree() -> None:
    candidate = {**NEW, "rope_theta": 500000.0}
    assert fields(OLD, candidate) == ["rope_theta"]
    assert fields(OLD, {**NEW, "rope_theta": 10000}) == []


yarn = st.fixed_dictionaries(
    {"factor": st.floats(1, 64), "original_max_position_embeddings": st.integers(1, 2**20)},
    optional={"beta_fast": st.floats(1, 64), "mscale": st.floats(0, 2)},
)


@settings(max_examples=60, deadline=None)
@given(
    theta=st.floats(1.0, 1e8), scaling=yarn, kind=st.sampled_from(["yarn", "linear", "llama3", "longrope"])
)
def test_any_scaling_is_equal_in_both_spellings(theta: float, scaling: dict[str, Any], kind: str) -> None:
    old = {"rope_theta": theta, "rope_scaling": {"type": kind, **scaling}}
    new = {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **scaling}}
    assert list(read_rope(old).values()) == list(read_rope(new).values())


def test_gemmas_two_bases_are_equal_by_layer_type() -> None:
    old = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    new = {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    }
    assert list(read_rope(old).values()) == list(read_rope(new).values())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from([*OLD, "rope_parameters", "text_config", "layer_types", "head_dim", "auto_map"])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(keys, json_values, max_size=8), st.dictionaries(keys, json_values, max_size=8))
def test_no_config_crashes_the_comparison(source: dict[str, Any], candidate: dict[str, Any]) -> None:
    assert len(compare_architecture(source, candidate)) <= architecture.MAX_FINDINGS
    assert [f for f in compare_architecture(source, source) if f.rule != "execution"] == []


def test_the_demos_source_equals_itself_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(NEW))
    assert compare_architecture(NEW, json.loads(path.read_text())) == ()
