"""Mixture-of-experts sources: stacked experts, and what candidates make of them."""

from __future__ import annotations

from pathlib import Path

from small_checkpoints import Tensors, base_config, write_checkpoint

from lowbit_ray.checkpoint.contract import check_contract
from lowbit_ray.rules import Rules

EXPERTS, HIDDEN, INTERMEDIATE = 4, 64, 96
BASE = "model.layers.0.mlp.experts"


def source_tensors(*, transposed: bool = False) -> Tensors:
    """Stacked experts, rows first, or columns first as gpt-oss has them."""
    up, down = (EXPERTS, 2 * INTERMEDIATE, HIDDEN), (EXPERTS, HIDDEN, INTERMEDIATE)
    if transposed:
        up, down = (EXPERTS, HIDDEN, 2 * INTERMEDIATE), (EXPERTS, INTERMEDIATE, HIDDEN)
    return {
        f"{BASE}.gate_up_proj": ("BF16", up),
        f"{BASE}.down_proj": ("BF16", down),
        "model.norm.weight": ("BF16", (HIDDEN,)),
    }


def mxfp4_tensors() -> Tensors:
    return {
        f"{BASE}.gate_up_proj_blocks": ("U8", (EXPERTS, 2 * INTERMEDIATE, HIDDEN // 32, 16)),
        f"{BASE}.gate_up_proj_scales": ("U8", (EXPERTS, 2 * INTERMEDIATE, HIDDEN // 32)),
        f"{BASE}.down_proj_blocks": ("U8", (EXPERTS, HIDDEN, INTERMEDIATE // 32, 16)),
        f"{BASE}.down_proj_scales": ("U8", (EXPERTS, HIDDEN, INTERMEDIATE // 32)),
        "model.norm.weight": ("BF16", (HIDDEN,)),
    }


def config(**changes: object) -> dict[str, object]:
    return base_config(hidden_size=HIDDEN, **changes)


MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}


def test_mxfp4_experts_are_read_as_4_bits_with_16_bit_inputs(tmp_path: Path, rules: Rules) -> None:
    for transposed in (False, True):
        folder = tmp_path / str(transposed)
        source = write_checkpoint(folder / "source", source_tensors(transposed=transposed), config())
        candidate = write_checkpoint(folder / "mxfp4", mxfp4_tensors(), config(quantization_config=MXFP4))
        contract = check_contract(source, candidate, rules)
        assert contract.reason is None
        assert contract.precision is not None
        assert contract.precision.label == "W4A16KV16"
        assert contract.precision.group_sizes == (32,)


def test_missing_scales_of_mxfp4_experts_break_the_contract(tmp_path: Path, rules: Rules) -> None:
    source = write_checkpoint(tmp_path / "source", source_tensors(), config())
    tensors = mxfp4_tensors()
    del tensors[f"{BASE}.down_proj_scales"]
    candidate = write_checkpoint(tmp_path / "mxfp4", tensors, config(quantization_config=MXFP4))
    assert [f.field for f in check_contract(source, candidate, rules).findings] == [
        f"{BASE}.down_proj_scales"
    ]


def test_experts_stored_one_by_one_stand_for_stacked_ones(tmp_path: Path, rules: Rules) -> None:
    source = write_checkpoint(tmp_path / "source", source_tensors(), config())
    tensors: Tensors = {"model.norm.weight": ("BF16", (HIDDEN,))}
    for expert in range(EXPERTS):
        for name, shape in {
            "gate_proj": (INTERMEDIATE, HIDDEN),
            "up_proj": (INTERMEDIATE, HIDDEN),
            "down_proj": (HIDDEN, INTERMEDIATE),
        }.items():
            tensors[f"{BASE}.{expert}.{name}.weight"] = ("F8_E4M3", shape)
            tensors[f"{BASE}.{expert}.{name}.weight_scale"] = ("F32", ())
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    contract = check_contract(
        source, write_checkpoint(tmp_path / "fp8", tensors, config(quantization_config=fp8)), rules
    )
    assert contract.reason is None
    assert contract.precision is not None
    assert contract.precision.label == "W8A8KV16"


def test_stacked_fp8_experts_keep_their_scales_beside_them(tmp_path: Path, rules: Rules) -> None:
    source = write_checkpoint(tmp_path / "source", source_tensors(), config())
    tensors: Tensors = {"model.norm.weight": ("BF16", (HIDDEN,))}
    for name, (dtype, shape) in source_tensors().items():
        if "experts" in name:
            assert dtype == "BF16"
            tensors[name] = ("F8_E4M3", shape)
            tensors[f"{name}_scale_inv"] = ("F32", (EXPERTS, -(-shape[1] // 128), -(-shape[2] // 128)))
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    candidate = write_checkpoint(tmp_path / "fp8", tensors, config(quantization_config=fp8))
    assert check_contract(source, candidate, rules).reason is None
