"""vLLM's Prometheus text."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowbit_ray.engines.accounts import cache_config, kv_usage, sample
from lowbit_ray.errors import EngineError


def test_lesson_40_the_cache_configuration_is_read_from_its_labels(fixtures: Path) -> None:
    config = cache_config((fixtures / "vllm-0.25.1-h200-qwen35-27b.metrics").read_text())
    assert config["kv_cache_size_tokens"] == "1095179"
    assert config["num_gpu_blocks"] == "1504"
    assert config["kv_offloading_size"] == "None"


def test_a_label_may_hold_quotes_and_braces() -> None:
    assert cache_config('vllm:cache_config_info{a="{\\"x\\": 1}",b="2"} 1.0')["b"] == "2"


@pytest.mark.parametrize("name", ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"])
def test_lesson_35_the_kv_gauge_is_read_under_both_names(name: str) -> None:
    assert kv_usage(f'# HELP {name} x\n{name}{{engine="0",model_name="lowbit"}} 0.2656\n') == 0.2656


def test_lesson_35_no_gauge_is_an_error_not_zero() -> None:
    with pytest.raises(EngineError, match="kv_cache_usage_perc or vllm:gpu_cache_usage_perc"):
        kv_usage("vllm:num_requests_running 3\n")


def test_lesson_36_several_gauges_are_refused() -> None:
    text = 'vllm:kv_cache_usage_perc{engine="0"} 0.1\nvllm:kv_cache_usage_perc{engine="1"} 0.2\n'
    with pytest.raises(EngineError, match="several engines"):
        kv_usage(text)


def test_lesson_36_several_engines_have_no_one_pool() -> None:
    line = 'vllm:cache_config_info{engine="0",block_size="16"} 1.0\n'
    with pytest.raises(EngineError, match="exactly one engine") as caught:
        cache_config(line + line.replace('engine="0"', 'engine="1"'))
    assert caught.value.found == "2 samples"


@pytest.mark.parametrize("value", ["66.7", "-0.1", "NaN"])
def test_lesson_37_and_38_the_gauge_is_a_share_of_the_pool(value: str) -> None:
    with pytest.raises(EngineError):
        kv_usage(f"vllm:kv_cache_usage_perc {value}\n")


def test_a_counter_is_summed_over_its_labels() -> None:
    name = "vllm:request_success_total"
    text = f'{name}{{finished_reason="stop"}} 2.0\n{name}{{finished_reason="length"}} 3\n'
    assert sample(text, name) == 5


def test_the_idle_gauge_of_a_real_server_is_zero(fixtures: Path) -> None:
    assert kv_usage((fixtures / "vllm-0.32.0-cpu-smollm2-bf16.metrics").read_text()) == 0.0
