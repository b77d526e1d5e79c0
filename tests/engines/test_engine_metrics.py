"""The cache configuration among vLLM's metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowbit_ray.engines.accounts import cache_config
from lowbit_ray.errors import EngineError


def test_the_cache_configuration_is_read_from_its_labels(fixtures: Path) -> None:
    config = cache_config((fixtures / "vllm-0.25.1-h200-qwen35-27b.metrics").read_text())
    assert config["kv_cache_size_tokens"] == "1095179"
    assert config["num_gpu_blocks"] == "1504"
    assert config["kv_offloading_size"] == "None"


def test_a_label_may_hold_quotes_and_braces() -> None:
    assert cache_config('vllm:cache_config_info{a="{\\"x\\": 1}",b="2"} 1.0')["b"] == "2"


def test_several_engines_have_no_one_pool() -> None:
    line = 'vllm:cache_config_info{engine="0",block_size="16"} 1.0\n'
    with pytest.raises(EngineError, match="exactly one engine") as caught:
        cache_config(line + line.replace('engine="0"', 'engine="1"'))
    assert caught.value.found == "2 samples"
