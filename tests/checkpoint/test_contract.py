"""The contract: what keeps it, and each way to break it."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recipes import RECIPES
from recipes_compressed import INT8, INT8_TOKEN, compressed, int_group
from small_checkpoints import (
    HIDDEN,
    LAYERS,
    VOCABULARY,
    Recipe,
    Tensors,
    base_config,
    kv_scales,
    linear_shapes,
    plain_tensors,
    write_checkpoint,
    write_shards,
    write_source,
)

from lowbit_ray.checkpoint.contract import Contract, check_contract
from lowbit_ray.checkpoint.findings import Finding
from lowbit_ray.errors import CheckpointError
from lowbit_ray.rules import Rules

INT8_RECIPE = next(recipe for recipe in RECIPES if recipe.name == "compressed-tensors int8")
KV_RECIPE = next(recipe for recipe in RECIPES if recipe.name.endswith("static, fp8 KV"))
GPTQ_RECIPE = next(recipe for recipe in RECIPES if recipe.name == "gptq, 4 bits")

Check = Callable[..., Contract]


@pytest.fixture
def check(tmp_path: Path, source: Path, rules: Rules) -> Check:
    """Holds a candidate of these tensors and this config against the shared source."""

    def run(tensors: Tensors | None = None, config: dict[str, Any] | None = None, **files: Any) -> Contract:
        candidate = write_checkpoint(
            tmp_path / "candidate",
            INT8_RECIPE.tensors() if tensors is None else tensors,
            INT8_RECIPE.config() if config is None else config,
            **files,
        )
        return check_contract(source, candidate, rules)

    return run


def broken(contract: Contract) -> list[Finding]:
    return [finding for finding in contract.findings if finding.breaks]


def test_a_source_keeps_its_own_contract(source: Path, rules: Rules) -> None:
    contract = check_contract(source, source, rules)
    assert (contract.kept, contract.findings, contract.foreign_share) == (True, (), 0.0)
    assert contract.stored_gib == contract.source_gib


def test_shards_keep_the_contract_as_one_file_does(tmp_path: Path, source: Path, rules: Rules) -> None:
    (tmp_path / "config.json").write_text(json.dumps(INT8_RECIPE.config()))
    write_shards(tmp_path, INT8_RECIPE.tensors(), 4)
    assert check_contract(source, tmp_path, rules).reason is None


def test_a_missing_tensor_is_named_with_its_shape(check: Check) -> None:
    tensors = INT8_RECIPE.tensors()
    del tensors["model.norm.weight"]
    finding = broken(check(tensors))[0]
    assert (finding.field, finding.rule) == ("model.norm.weight", "source_weights")
    assert str([HIDDEN]) in finding.expected


def test_a_tensor_of_another_shape_says_found_and_expected(check: Check) -> None:
    tensors = INT8_RECIPE.tensors()
    tensors["model.norm.weight"] = ("BF16", (HIDDEN + 1,))
    finding = broken(check(tensors))[0]
    assert finding.field == "model.norm.weight"
    assert str(HIDDEN + 1) in finding.found
    assert str(HIDDEN) in finding.expected


def test_a_quantized_tensor_of_another_shape_is_found(check: Check) -> None:
    tensors = INT8_RECIPE.tensors()
    tensors["model.layers.0.mlp.up_proj.weight"] = ("I8", (HIDDEN, HIDDEN))
    assert broken(check(tensors))[0].field == "model.layers.0.mlp.up_proj.weight"


def test_two_percent_of_foreign_bytes_break_the_contract(check: Check, source: Path) -> None:
    total = sum(2 * shape[0] * (shape[1] if len(shape) > 1 else 1) for _, shape in plain_tensors().values())
    contract = check({**INT8_RECIPE.tensors(), "adapter.lora": ("U8", (total // 50,))})
    assert contract.foreign == ("adapter.lora",)
    assert contract.foreign_share == pytest.approx(0.02, rel=0.01)
    assert broken(contract)[0].rule == "foreign_tensors"


def test_half_a_percent_of_foreign_bytes_is_only_mentioned(check: Check) -> None:
    contract = check({**INT8_RECIPE.tensors(), "note": ("U8", (4000,))})
    assert contract.kept
    assert [finding.field for finding in contract.findings] == ["note"]


def test_data_under_a_companions_name_is_foreign(check: Check) -> None:
    tensors = INT8_RECIPE.tensors()
    tensors["model.layers.0.mlp.up_proj.output_scale"] = ("F32", (HIDDEN, 2048))
    contract = check(tensors)
    assert contract.foreign == ("model.layers.0.mlp.up_proj.output_scale",)
    assert not contract.kept


def test_data_under_many_companions_names_is_foreign(check: Check) -> None:
    """Each is as small as a scale of groups of two could be; all of them hold twice the source's bytes."""
    tensors = INT8_RECIPE.tensors()
    for module, (rows, columns) in linear_shapes().items():
        for suffix in ("output_scale", "output_zero_point", "pre_quant_scale", "activation_scale"):
            tensors[f"{module}.{suffix}"] = ("U8", (rows * columns,))
    contract = check(tensors)
    assert contract.foreign_share > 1
    assert broken(contract)[0].rule == "foreign_tensors"


def test_data_in_a_companion_of_free_shape_is_found(check: Check) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.name == "bitsandbytes nf4, nested")
    name = "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4"
    finding = broken(check({**recipe.tensors(), name: ("U8", (2**20,))}, recipe.config()))[0]
    assert (finding.field, finding.rule) == (name, "companions")


def test_a_leftover_scale_counts_as_a_companion(check: Check) -> None:
    tensors = INT8_RECIPE.tensors()
    tensors["model.layers.0.mlp.up_proj.output_scale"] = ("F32", ())
    assert check(tensors).findings == ()


def test_a_companion_of_another_shape_is_found(check: Check) -> None:
    tensors = INT8_RECIPE.tensors()
    tensors["model.layers.0.mlp.up_proj.weight_scale"] = ("F32", (7, 1))
    finding = broken(check(tensors))[0]
    assert (finding.field, finding.rule) == ("model.layers.0.mlp.up_proj.weight_scale", "companions")


def test_fused_projections_stand_for_their_shards(tmp_path: Path, source: Path, rules: Rules) -> None:
    tensors = INT8_RECIPE.tensors()
    for layer in range(LAYERS):
        for fused, shards in {
            "self_attn.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"],
        }.items():
            rows = 0
            for shard in shards:
                rows += tensors.pop(f"model.layers.{layer}.{shard}.weight")[1][0]
                del tensors[f"model.layers.{layer}.{shard}.weight_scale"]
            tensors[f"model.layers.{layer}.{fused}.weight"] = ("I8", (rows, HIDDEN))
            tensors[f"model.layers.{layer}.{fused}.weight_scale"] = ("F32", (rows, 1))
    contract = check_contract(source, write_checkpoint(tmp_path, tensors, INT8_RECIPE.config()), rules)
    assert contract.reason is None
    assert contract.precision is not None
    assert contract.precision.regions[0].effective_bits == pytest.approx(8 + 32 * 2.0 / HIDDEN, rel=0.02)


def test_split_projections_stand_for_a_fused_source(tmp_path: Path, rules: Rules) -> None:
    fused: Tensors = {
        "model.layers.0.self_attn.qkv_proj.weight": ("BF16", (HIDDEN + 2 * HIDDEN // 2, HIDDEN)),
        "model.layers.0.mlp.gate_up_proj.weight": ("BF16", (1024, HIDDEN)),
    }
    split: Tensors = {
        "model.layers.0.self_attn.q_proj.weight": ("BF16", (HIDDEN, HIDDEN)),
        "model.layers.0.self_attn.k_proj.weight": ("BF16", (HIDDEN // 2, HIDDEN)),
        "model.layers.0.self_attn.v_proj.weight": ("BF16", (HIDDEN // 2, HIDDEN)),
        "model.layers.0.mlp.gate_proj.weight": ("BF16", (512, HIDDEN)),
        "model.layers.0.mlp.up_proj.weight": ("BF16", (512, HIDDEN)),
    }
    source = write_checkpoint(tmp_path / "source", fused, base_config())
    candidate = write_checkpoint(tmp_path / "candidate", split, base_config())
    assert check_contract(source, candidate, rules).reason is None


def test_shards_of_a_fused_module_must_be_quantized_alike(check: Check) -> None:
    tensors = INT8_RECIPE.tensors()
    name = "model.layers.0.self_attn.k_proj"
    tensors[f"{name}.weight"] = ("BF16", tensors[f"{name}.weight"][1])
    del tensors[f"{name}.weight_scale"]
    config = base_config(
        quantization_config=compressed(INT8, INT8_TOKEN, "int-quantized", ignore=["lm_head", name])
    )
    finding = broken(check(tensors, config))[0]
    assert finding.field == "model.layers.0.self_attn.{q_proj,k_proj,v_proj}"
    assert "k_proj W16A16" in finding.found


def test_a_tied_source_may_get_a_head_of_its_own(tmp_path: Path, rules: Rules) -> None:
    source = write_source(tmp_path / "source", tie_word_embeddings=True)
    tensors = INT8_RECIPE.tensors()
    tensors["lm_head.weight"] = ("I8", (VOCABULARY, HIDDEN))
    tensors["lm_head.weight_scale"] = ("F32", (VOCABULARY, 1))
    group = compressed(INT8, INT8_TOKEN, "int-quantized", ignore=[])
    group["config_groups"]["group_0"]["targets"] = ["Linear", "lm_head"]
    candidate = write_checkpoint(tmp_path / "candidate", tensors, base_config(quantization_config=group))
    contract = check_contract(source, candidate, rules)
    assert contract.reason is None
    assert contract.precision is not None
    assert contract.precision.head == 8


def test_an_untied_tied_source_needs_its_head(tmp_path: Path, rules: Rules) -> None:
    source = write_source(tmp_path / "source", tie_word_embeddings=True)
    tensors = plain_tensors(tied=True)
    candidate = write_checkpoint(tmp_path / "candidate", tensors, base_config(tie_word_embeddings=False))
    assert [finding.field for finding in broken(check_contract(source, candidate, rules))] == [
        "lm_head.weight"
    ]


def test_the_sources_own_head_may_not_be_tied_away(check: Check) -> None:
    tensors = plain_tensors()
    del tensors["lm_head.weight"]
    fields = [finding.field for finding in broken(check(tensors, base_config(tie_word_embeddings=True)))]
    assert fields == ["tie_word_embeddings", "lm_head.weight"]


@pytest.mark.parametrize("suffix", ["k_scale", "v_scale"])
def test_a_kv_scale_that_one_layer_lacks_is_found(check: Check, suffix: str) -> None:
    tensors = KV_RECIPE.tensors()
    del tensors[f"model.layers.1.self_attn.{suffix}"]
    finding = broken(check(tensors, KV_RECIPE.config()))[0]
    assert f"model.layers.1.self_attn.{suffix}" in finding.found


def test_a_misspelled_kv_scale_is_missing_and_foreign(check: Check) -> None:
    tensors = KV_RECIPE.tensors()
    tensors["model.layers.0.self_attn.key_scale"] = tensors.pop("model.layers.0.self_attn.k_scale")
    contract = check(tensors, KV_RECIPE.config())
    assert contract.foreign == ("model.layers.0.self_attn.key_scale",)
    assert "model.layers.0.self_attn.k_scale" in broken(contract)[0].found


@pytest.mark.parametrize(
    "names",
    [
        ("kv_scale", "kv_scale"),
        ("attn.k_scale", "attn.v_scale"),
        ("k_proj.k_scale", "v_proj.v_scale"),
        ("qkv_proj.k_scale", "qkv_proj.v_scale"),
        ("k_cache.scale", "v_cache.scale"),
        ("k_proj.output_scale", "v_proj.output_scale"),
    ],
)
def test_every_name_that_engines_accept_for_kv_scales_is_known(check: Check, names: tuple[str, str]) -> None:
    tensors = {
        name: part for name, part in KV_RECIPE.tensors().items() if not name.endswith(("k_scale", "v_scale"))
    }
    assert check({**tensors, **kv_scales(names)}, KV_RECIPE.config()).findings == ()


def test_modelopt_kv_without_scales_is_served_with_one_and_only_mentioned(check: Check) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.name == "modelopt FP8, fp8 KV")
    tensors = {
        name: part for name, part in recipe.tensors().items() if not name.endswith(("k_scale", "v_scale"))
    }
    contract = check(tensors, recipe.config())
    assert contract.kept
    assert "scale 1.0" in contract.findings[0].summary


@pytest.mark.parametrize(("value", "noted"), [(1.0, True), (0.07, False)])
def test_kv_scales_that_are_all_one_are_worth_a_note(
    tmp_path: Path, source: Path, rules: Rules, value: float, noted: bool
) -> None:
    folder = write_checkpoint(tmp_path, KV_RECIPE.tensors(), KV_RECIPE.config())
    data = bytearray((folder / "model.safetensors").read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name.endswith((".k_scale", ".v_scale")):
            begin, end = (start + offset for offset in entry["data_offsets"])
            data[begin:end] = struct.pack("<f", value)
    (folder / "model.safetensors").write_bytes(data)
    contract = check_contract(source, folder, rules)
    assert contract.kept
    assert [finding.summary.partition(":")[0] for finding in contract.findings] == (
        ["every scale of the KV cache is 1"] if noted else []
    )


def test_two_quantization_configs_that_disagree_break_the_contract(check: Check) -> None:
    legacy = {"bits": 8, "group_size": 128, "sym": True, "desc_act": False}
    finding = broken(check(GPTQ_RECIPE.tensors(), GPTQ_RECIPE.config(), quantize_config=legacy))[0]
    assert finding.file == "quantize_config.json"
    assert "W8A16" in finding.found
    assert "config.json: quantization_config" in finding.expected


def test_two_quantization_configs_that_agree_keep_it(check: Check) -> None:
    legacy = {"bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    assert check(GPTQ_RECIPE.tensors(), GPTQ_RECIPE.config(), quantize_config=legacy).findings == ()


def test_modelopts_two_places_must_agree_on_the_kv_cache(check: Check) -> None:
    recipe = next(recipe for recipe in RECIPES if recipe.name == "modelopt FP8, fp8 KV")
    other = {
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
    }
    assert "disagree" in broken(check(recipe.tensors(), recipe.config(), hf_quant_config=other))[0].summary


@pytest.mark.parametrize("place", ["text_config.quantization_config", "compression_config"])
def test_the_other_places_of_config_json_are_read(check: Check, place: str) -> None:
    config = base_config()
    parent, _, key = place.rpartition(".")
    (config.setdefault(parent, {}) if parent else config)[key] = INT8_RECIPE.quantization
    contract = check(None, config)
    assert contract.precision is not None
    assert contract.precision.label == "W8A8KV16"


@pytest.mark.parametrize(
    ("quantization", "field"),
    [
        ({"quant_method": "ggml"}, "quantization_config.quant_method"),
        ({"bits": 4}, "quantization_config.quant_method"),
        ({**INT8_RECIPE.quantization, "surprise": 1}, "quantization_config.surprise"),
        ({**INT8_RECIPE.quantization, "format": "marlin-24"}, "quantization_config.format"),
        (
            {**INT8_RECIPE.quantization, "config_groups": {"W9A9": ["Linear"]}},
            "quantization_config.config_groups.W9A9",
        ),
        ({"quant_method": "gptq", "bits": 99, "group_size": 128}, "quantization_config.bits"),
        ({"quant_method": "gptq", "bits": 4}, "quantization_config.group_size"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "quantization_config.group_size"),
        (
            {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": [1, 1]},
            "activation_scheme",
        ),
        ({"quant_method": "modelopt", "quant_algo": "INT2"}, "quantization_config.quant_algo"),
        ({"quant_method": "bitsandbytes"}, "quantization_config.load_in_4bit"),
    ],
)
def test_a_quantization_config_that_cannot_be_read_is_a_finding(
    check: Check, quantization: dict[str, Any], field: str
) -> None:
    contract = check(None, base_config(quantization_config=quantization))
    assert contract.precision is None
    assert field in broken(contract)[0].field


def test_a_group_that_ignores_by_regular_expression_leaves_the_weight_plain(check: Check) -> None:
    tensors = INT8_RECIPE.tensors()
    for name in [name for name in tensors if ".0.mlp." in name]:
        dtype, shape = tensors.pop(name)
        if dtype == "I8":
            tensors[name] = ("BF16", shape)
    config = compressed(INT8, INT8_TOKEN, "int-quantized", ignore=["lm_head", r"re:.*layers\.0\.mlp.*"])
    contract = check(tensors, base_config(quantization_config=config))
    assert contract.reason is None
    assert contract.precision is not None
    assert contract.precision.mixed


def test_gptqs_dynamic_overrides_bits_and_skips_by_pattern(check: Check) -> None:
    tensors = GPTQ_RECIPE.tensors()
    eight = Recipe(
        "", "qweight I32 k/4,n; qzeros I32 k/128,n/4; scales F16 k/128,n; g_idx I32 k", {}, ""
    ).tensors()
    for name in list(tensors):
        if ".0." in name:
            tensors[name] = eight[name] if name in eight else tensors[name]
        if ".1.mlp.down_proj." in name:
            del tensors[name]
    tensors["model.layers.1.mlp.down_proj.weight"] = ("BF16", (HIDDEN, 512))
    dynamic = {r"+:.*\.0\..*": {"bits": 8}, r"-:.*\.1\.mlp\.down_proj": {}}
    contract = check(
        tensors, base_config(quantization_config={**GPTQ_RECIPE.quantization, "dynamic": dynamic})
    )
    assert contract.reason is None
    assert contract.precision is not None
    assert set(contract.precision.regions[0].bits) == {4, 8, 16}


def test_what_gptq_quantized_is_read_from_the_tensors_whatever_the_config_lists(
    check: Check,
) -> None:
    """Exporters list too few modules: what is quantized and not listed, and what is neither, are both fine."""
    listed = [["self_attn.q_proj"]]
    config = GPTQ_RECIPE.config()
    config["quantization_config"]["modules_in_block_to_quantize"] = listed
    whole = check(GPTQ_RECIPE.tensors(), config)
    assert whole.kept
    assert whole.precision is not None
    assert whole.precision.weights == 4


def test_a_module_that_gptq_left_plain_stays_plain(check: Check) -> None:
    module = "model.layers.0.mlp.down_proj"
    tensors = {
        name: part for name, part in GPTQ_RECIPE.tensors().items() if not name.startswith(f"{module}.")
    }
    tensors[f"{module}.weight"] = plain_tensors()[f"{module}.weight"]
    contract = check(tensors, GPTQ_RECIPE.config())
    assert contract.kept
    assert contract.precision is not None
    assert (
        contract.precision.effective_bits
        > check(GPTQ_RECIPE.tensors(), GPTQ_RECIPE.config()).precision.effective_bits
    )  # type: ignore[union-attr]


def test_int4_in_bytes_is_read_as_the_8_bits_it_takes(check: Check) -> None:
    config = compressed(int_group(4, 128), INT8_TOKEN, "int-quantized")
    tensors = Recipe("", "weight I8 n,k; weight_scale F32 n,k/128", {}, "").tensors()
    contract = check(tensors, base_config(quantization_config=config))
    assert contract.kept
    assert contract.precision is not None
    assert (contract.precision.weights, contract.findings[0].expected) == (8, "4")


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "training_args.bin", "optimizer.pt", "x.pkl", "a/b.pth"]
)
def test_pickles_break_the_checkpoint_tracks_contract(
    tmp_path: Path, source: Path, rules: Rules, name: str
) -> None:
    candidate = INT8_RECIPE.write(tmp_path / "candidate")
    (candidate / name).parent.mkdir(exist_ok=True)
    (candidate / name).write_bytes(b"x")
    finding = broken(check_contract(source, candidate, rules))[0]
    assert (finding.file, finding.found) == (name, "a pickle")
    assert check_contract(source, candidate, rules, "engine").kept


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("modeling_llama.py", b"", "program"),
        ("launch.sh", b"", "program"),
        ("README", b"#!/bin/sh\n", "program"),
        ("tool", b"\x7fELF\x02", "program"),
        ("weights", b"\x80\x04\x95", "pickle"),
        ("kernels.so.1", b"", "program"),
    ],
)
def test_programs_are_found_by_name_and_by_their_first_bytes(
    tmp_path: Path, source: Path, rules: Rules, name: str, data: bytes, kind: str
) -> None:
    candidate = INT8_RECIPE.write(tmp_path / "candidate")
    (candidate / name).write_bytes(data)
    assert broken(check_contract(source, candidate, rules))[0].found == f"a {kind}"


def test_a_link_out_of_the_checkpoint_is_refused(tmp_path: Path, source: Path, rules: Rules) -> None:
    candidate = INT8_RECIPE.write(tmp_path / "candidate")
    (tmp_path / "secret").write_text("x")
    (candidate / "vocab.json").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match="leads out of the checkpoint"):
        check_contract(source, candidate, rules)


def test_a_link_inside_the_checkpoint_is_allowed(tmp_path: Path, source: Path, rules: Rules) -> None:
    candidate = INT8_RECIPE.write(tmp_path / "candidate")
    (candidate / "generation_config.json").symlink_to(candidate / "config.json")
    assert check_contract(source, candidate, rules).kept


def test_a_link_to_nowhere_and_a_pipe_are_refused(tmp_path: Path, source: Path, rules: Rules) -> None:
    for number in range(2):
        candidate = INT8_RECIPE.write(tmp_path / str(number))
        if number:
            os.mkfifo(candidate / "pipe")
        else:
            (candidate / "gone").symlink_to(candidate / "absent")
        with pytest.raises(CheckpointError):
            check_contract(source, candidate, rules)


def test_a_missing_config_is_named(tmp_path: Path, source: Path, rules: Rules) -> None:
    candidate = INT8_RECIPE.write(tmp_path)
    (candidate / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: the file is missing"):
        check_contract(source, candidate, rules)


@pytest.mark.parametrize(
    ("key", "value"), [("repetition_penalty", 1.2), ("max_new_tokens", 8), ("temperature", 0.6)]
)
def test_other_sampling_defaults_are_worth_a_note(check: Check, key: str, value: float) -> None:
    contract = check(generation_config={key: value})
    assert contract.kept
    assert [(finding.file, finding.field) for finding in contract.findings] == [
        ("generation_config.json", key)
    ]


def test_the_same_sampling_defaults_are_not_mentioned(check: Check) -> None:
    assert check(generation_config={"repetition_penalty": 1.0, "do_sample": True}).findings == ()


def test_the_reason_names_file_field_found_and_expected(check: Check) -> None:
    contract = check(None, {**INT8_RECIPE.config(), "hidden_size": 512})
    assert contract.reason is not None
    assert "config.json: hidden_size: differs from the source, found 512, expected 256" in contract.reason


def test_a_contract_survives_being_written_and_read(check: Check) -> None:
    contract = check()
    assert Contract.model_validate_json(contract.model_dump_json()) == contract
