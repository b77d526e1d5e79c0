"""Expected memory against what has been measured on real devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import Tensors, base_config, plain_tensors, write_checkpoint

from lowbit_ray.checkpoint.config import ModelConfig
from lowbit_ray.checkpoint.header import read_headers
from lowbit_ray.checkpoint.memory import ExpectedMemory, KVShape, expect_memory, kv_shape, loaded_bytes
from lowbit_ray.checkpoint.reading import read_checkpoint
from lowbit_ray.rules import Rules
from lowbit_ray.tasks import load_task

QWEN3_8B = {
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
QWEN35_27B = {
    "text_config": {
        "num_hidden_layers": 64,
        "hidden_size": 5120,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
}


def shape_of(data: dict[str, Any]) -> KVShape:
    shape = kv_shape(ModelConfig(Path(), data, ()))
    assert shape is not None
    return shape


def test_a_dense_models_token_takes_what_the_example_record_shows() -> None:
    shape = shape_of(QWEN3_8B)
    assert shape.bytes_per_token(16) == 147_456
    assert shape.bytes_per_token(16) == pytest.approx(147_193, rel=0.01)
    assert shape.bytes_per_token(8) == pytest.approx(73_324, rel=0.01)


def test_a_dense_workloads_kv_is_what_the_example_record_shows(rules: Rules) -> None:
    shape, workload = shape_of(QWEN3_8B), rules.workloads["serve"]
    tokens = workload.input_len + workload.output_len
    kv = workload.max_concurrency * shape.request_bytes(tokens, 16) / 2**30
    assert kv == pytest.approx(38.182, rel=0.01)


def test_a_hybrids_block_is_what_vllm_chose() -> None:
    shape = shape_of(QWEN35_27B)
    assert (shape.layers, shape.linear) == (16, 48)
    assert shape.block_tokens(16) == 784


def test_a_hybrids_kv_is_what_was_measured() -> None:
    # vLLM 0.25.1, serve: 0.319 of a pool of 72.01 GiB, 32 requests of 8,704 tokens
    kv = 32 * shape_of(QWEN35_27B).request_bytes(8704, 16) / 2**30
    assert kv == pytest.approx(0.319 * 72.01, rel=0.02)


def test_sliding_layers_keep_their_window_only() -> None:
    config = {**QWEN3_8B, "sliding_window": 1024, "layer_types": ["sliding_attention", "full_attention"] * 18}
    shape = shape_of(config)
    assert shape.request_bytes(16 * 1024, 16) == 18 * 4096 * 16 * 1024 + 18 * 4096 * 1024


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_attention_heads", "hidden_size"])
@pytest.mark.parametrize("value", [None, 0, -1, "x", 2.5])
def test_a_config_without_a_shape_has_no_estimate(key: str, value: object) -> None:
    assert kv_shape(ModelConfig(Path(), {**QWEN3_8B, key: value}, ())) is None


def test_drafts_are_not_loaded_and_vision_only_if_asked(tmp_path: Path) -> None:
    tensors: Tensors = {
        "model.language_model.norm.weight": ("BF16", (100,)),
        "model.visual.blocks.0.weight": ("BF16", (10,)),
        "mtp.layers.0.weight": ("BF16", (1,)),
    }
    headers = read_headers(write_checkpoint(tmp_path, tensors, base_config()))
    assert loaded_bytes(headers, vision=False) == 200
    assert loaded_bytes(headers, vision=True) == 220


def expected(folder: Path, kv_bits: float, task: str, rules: Rules, dtype: str = "F8_E4M3") -> ExpectedMemory:
    source = read_checkpoint(write_checkpoint(folder / "source", plain_tensors(), base_config(**QWEN3_8B)))
    candidate = read_headers(write_checkpoint(folder / "candidate", plain_tensors(dtype), base_config()))
    memory = expect_memory((source.headers, source.config), candidate, kv_bits, load_task(task), rules)
    assert memory is not None
    return memory


def test_half_the_weights_and_half_the_kv_gain_a_factor_of_two(tmp_path: Path, rules: Rules) -> None:
    memory = expected(tmp_path, 8, "smollm2-135m", rules)
    assert memory.gain == pytest.approx(2.0, rel=1e-6)
    assert list(memory.workloads) == ["serve", "interactive", "long_context"]


def test_the_source_against_itself_gains_nothing(tmp_path: Path, rules: Rules) -> None:
    assert expected(tmp_path, 16, "smollm2-135m", rules, "BF16").gain == 1.0


def test_a_pool_cannot_be_larger_than_the_device(tmp_path: Path, rules: Rules) -> None:
    # 64 requests of 16,256 tokens would need 142.9 GiB; an H200 has 139.8
    memory = expected(tmp_path, 16, "qwen3-8b", rules)
    assert memory.workloads["long_context"].anchor_kv_gib == pytest.approx(0.9 * 139.8, rel=0.01)
    assert memory.workloads["serve"].anchor_kv_gib == pytest.approx(38.25, rel=0.01)
