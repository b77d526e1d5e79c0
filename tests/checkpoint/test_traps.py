"""What stands around a checkpoint and changes what is executed: each trap by name."""

from __future__ import annotations

import os

import pytest

from lowbit_ray.checkpoint.traps import allowed_environment, check_arguments, check_environment


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_MARLIN_INPUT_DTYPE",
        "VLLM_HUMMING_ONLINE_QUANT_CONFIG",
        "VLLM_HUMMING_INPUT_QUANT_CONFIG",
        "VLLM_DISABLED_KERNELS",
        "VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD",
        "VLLM_ENABLE_STARTUP_PLAN",
        "VLLM_PLUGINS",
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
        "VLLM_SOMETHING_OF_NEXT_YEAR",
        "LD_PRELOAD",
        "PYTHONPATH",
        "PYTHONSTARTUP",
    ],
)
def test_a_variable_that_is_not_on_the_list_is_refused(name: str) -> None:
    finding = check_environment({name: "int8", "PATH": "/bin"})[0]
    assert (finding.field, finding.found, finding.rule) == (name, "int8", "execution")
    assert allowed_environment({name: "int8"}) == {}


def test_known_traps_say_what_they_change() -> None:
    assert "turns W4A16 into W4A8" in check_environment({"VLLM_MARLIN_INPUT_DTYPE": "fp8"})[0].summary


@pytest.mark.parametrize(
    "name", ["VLLM_CACHE_ROOT", "VLLM_LOGGING_LEVEL", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "PATH"]
)
def test_a_variable_on_the_list_is_kept(name: str) -> None:
    assert check_environment({name: "1"}) == ()
    assert allowed_environment({name: "1"}) == {name: "1"}


def test_of_this_machines_environment_little_is_left() -> None:
    kept = allowed_environment(os.environ)
    assert "PATH" in kept
    assert "PYTEST_CURRENT_TEST" not in kept


@pytest.mark.parametrize(
    "argument",
    [
        "--hf-overrides",
        '--hf-overrides={"num_hidden_layers":1}',
        "--quantization",
        "-q",
        "--quantization-config={}",
        "--kv-cache-dtype",
        "--kv_cache_dtype=fp8",
        "--kv-cache-dtype-skip-layers",
        "--load-format",
        "--model-impl=transformers",
        "--logits-processors",
        "--speculative-config",
        "--override-generation-config",
        "--max-logprobs",
        "--logprobs-mode",
        "--kv-cache-memory-bytes",
        "--kv-offloading-size",
        "--cpu-offload-gb",
        "--trust-remote-code",
        "--TRUST-REMOTE-CODE",
    ],
)
def test_a_flag_that_changes_what_is_executed_is_refused(argument: str) -> None:
    finding = check_arguments(["--port", "8000", argument])[0]
    assert finding.field == argument.partition("=")[0]
    assert finding.summary.startswith("the flag is refused: it ")


def test_the_rules_own_flags_are_fine() -> None:
    flags = [
        "--max-model-len",
        "32768",
        "--gpu-memory-utilization=0.9",
        "--no-enable-prefix-caching",
        "--seed",
        "0",
    ]
    assert check_arguments(["serve", "/models/x", *flags]) == ()


def test_values_that_look_like_flags_of_no_dash_are_not_flags() -> None:
    assert check_arguments(["quantization", "fp8"]) == ()
