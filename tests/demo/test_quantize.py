"""Rounding to nearest: what comes out is as near to the source as its scheme allows, and keeps the contract."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from fakes.checkpoints import write_anchor
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from lowbit_ray.checkpoint.contract import check_contract
from lowbit_ray.demo.quantize import GROUP, Scheme, quantize
from lowbit_ray.errors import CheckpointError
from lowbit_ray.rules import load_rules

LAYER = "model.layers.0.mlp.down_proj."


def unpack(words: np.ndarray) -> np.ndarray:
    """int32 [N, K/8] → the signed values [N, K] it holds."""
    values = (words.view(np.uint32)[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    return values.reshape(len(words), -1).astype(np.int64) - 8


@pytest.fixture(scope="module")
def anchor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_anchor(tmp_path_factory.mktemp("quantize") / "anchor")


@pytest.mark.parametrize(("scheme", "label"), [("w8a8", "W8A8KV16"), ("w4a16", "W4A16KV16")])
def test_a_candidate_keeps_the_contract_and_reads_as_it_is_called(
    anchor: Path, scheme: Scheme, label: str
) -> None:
    candidate = quantize(anchor, anchor.parent / scheme, scheme)
    verdict = check_contract(anchor, candidate, load_rules())
    assert verdict.kept, verdict.reason
    assert verdict.precision is not None
    assert verdict.precision.label == label


def test_int8_is_within_half_a_step_of_the_source(anchor: Path) -> None:
    source = load_file(anchor / "model.safetensors")[LAYER + "weight"].astype(np.float32)
    tensors = load_file(quantize(anchor, anchor.parent / "w8a8", "w8a8") / "model.safetensors")
    scale = tensors[LAYER + "weight_scale"]
    restored = tensors[LAYER + "weight"].astype(np.float32) * scale
    assert np.all(np.abs(restored - source) <= scale / 2 + 1e-7)


def test_int4_is_within_half_a_step_of_the_source_but_at_its_negative_end(anchor: Path) -> None:
    source = load_file(anchor / "model.safetensors")[LAYER + "weight"].astype(np.float32)
    tensors = load_file(quantize(anchor, anchor.parent / "w4a16", "w4a16") / "model.safetensors")
    assert tensors[LAYER + "weight_shape"].tolist() == list(source.shape)
    scale = np.repeat(tensors[LAYER + "weight_scale"].astype(np.float32), GROUP, axis=1)
    restored = unpack(tensors[LAYER + "weight_packed"]) * scale
    # 7.5 steps reach both ends: the positive one is cut to 7 of them; BF16 scales add 2^-8 of the value
    assert np.all(np.abs(restored - source) <= scale / 2 + np.abs(source) / 128)


def test_what_is_no_linear_layer_stays_as_it_is(anchor: Path) -> None:
    source = load_file(anchor / "model.safetensors")
    tensors = load_file(quantize(anchor, anchor.parent / "w8a8", "w8a8") / "model.safetensors")
    for name, value in source.items():
        if not name.endswith("_proj.weight"):
            assert np.array_equal(value, tensors[name])
            assert tensors[name].dtype == ml_dtypes.bfloat16


def test_a_finished_candidate_is_kept_and_a_half_made_one_is_not(anchor: Path) -> None:
    part = anchor.parent / ".half.part"
    part.mkdir()
    (part / "rubbish").write_text("left by a killed run")
    made = quantize(anchor, anchor.parent / "half", "w8a8")
    assert not (made / "rubbish").exists()
    before = (made / "model.safetensors").stat().st_mtime_ns
    quantize(anchor, made, "w8a8")
    assert (made / "model.safetensors").stat().st_mtime_ns == before


def test_a_source_in_another_type_is_refused_by_the_tensors_name(anchor: Path, tmp_path: Path) -> None:
    made = quantize(anchor, anchor.parent / "w8a8", "w8a8")
    with pytest.raises(CheckpointError, match=r"_proj\.weight: a tensor is not BF16"):
        quantize(made, tmp_path / "twice", "w8a8")


@given(st.lists(st.integers(-8, 7), min_size=8, max_size=64).map(lambda v: v[: len(v) // 8 * 8]))
def test_packing_is_undone_by_unpacking(values: list[int]) -> None:
    array = np.array(values).reshape(1, -1, 8) + 8
    words = (array << (4 * np.arange(8))).sum(axis=2).astype(np.uint32).view(np.int32)
    assert unpack(words).ravel().tolist() == values


def test_the_config_names_the_scheme(anchor: Path) -> None:
    made = quantize(anchor, anchor.parent / "w4a16", "w4a16")
    config = json.loads((made / "config.json").read_text())["quantization_config"]
    group = config["config_groups"]["group_0"]
    assert (config["format"], group["weights"]["num_bits"], group["weights"]["group_size"]) == (
        "pack-quantized",
        4,
        GROUP,
    )
