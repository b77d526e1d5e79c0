"""Executed precision, from real start-up logs and from the lines that other devices print."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipes import RECIPES
from small_checkpoints import write_source

from lowbit_ray.checkpoint.executed import executed_precision
from lowbit_ray.checkpoint.precision import Precision, parse_label
from lowbit_ray.checkpoint.reading import read_both, read_checkpoint


def read(folder: Path, name: str) -> Precision:
    """What is read of the recipe of this name, or of the BF16 source."""
    source = write_source(folder / "source")
    recipe = next((recipe for recipe in RECIPES if recipe.name == name), None)
    candidate = recipe.write(folder / "candidate") if recipe else source
    precision = read_both(read_checkpoint(source), read_checkpoint(candidate)).precision
    assert precision is not None
    return precision


def engine_line(**fields: str) -> str:
    config = ", ".join(
        f"{key}={value}" for key, value in {"model": "'/m'", "dtype": "torch.bfloat16", **fields}.items()
    )
    return f"(EngineCore pid=1) INFO Initializing a V1 LLM engine (v0.25.1) with config: {config}, seed=0"


def test_int8_on_a_cpu_runs_as_it_was_read(tmp_path: Path, fixtures: Path) -> None:
    log = (fixtures / "vllm-0.32.0-cpu-smollm2-w8a8.log").read_text()
    executed = executed_precision(read(tmp_path, "compressed-tensors int8"), None, log)
    assert (executed.label, executed.reasons) == ("W8A8KV16", ())
    assert executed.kernels == ("CPUInt8ScaledMMLinearKernel for CompressedTensorsW8A8Int8",)


def test_bf16_on_an_h200_runs_as_it_was_read(tmp_path: Path, fixtures: Path) -> None:
    log = (fixtures / "vllm-0.25.1-h200-qwen3-8b-bf16.log").read_text()
    executed = executed_precision(read(tmp_path, ""), None, log)
    assert (executed.label, executed.reasons) == ("W16A16KV16", ())


def test_a_plain_checkpoint_that_is_quantized_while_it_loads_is_seen(tmp_path: Path, fixtures: Path) -> None:
    log = (fixtures / "vllm-0.25.1-h200-qwen3-8b-fp8.log").read_text()
    executed = executed_precision(read(tmp_path, ""), None, log)
    assert executed.label == "W8A8KV8"
    assert executed.kv_cache_dtype == "fp8"
    assert any("quantized while it loads" in why for why in executed.reasons)


@pytest.mark.parametrize(
    ("recipe", "line", "label"),
    [
        ("compressed-tensors NVFP4", "Using MarlinNvFp4LinearKernel for NVFP4 GEMM", "W4A16KV16"),
        ("compressed-tensors NVFP4", "Using EmulationNvFp4LinearKernel for NVFP4 GEMM", "W4A16KV16"),
        ("compressed-tensors NVFP4", "Using CutlassNvFp4LinearKernel for NVFP4 GEMM", "W4A4KV16"),
        (
            "compressed-tensors NVFP4",
            "Your GPU does not have native support for FP4 computation but FP4 quantization is being used.",
            "W4A16KV16",
        ),
        ("compressed-tensors MXFP4", "Using MarlinMxFp4LinearKernel for MXFP4 GEMM", "W4A16KV16"),
        ("compressed-tensors MXFP8", "Using EmulationMxfp8LinearKernel for MXFP8 GEMM", "W16A16KV16"),
        ("compressed-tensors MXFP8", "Using DeepGemmMxfp8BmmLinearKernel for MXFP8 GEMM", "W8A8KV16"),
        ("fp8, tensor, static", "Selected MarlinFP8ScaledMMLinearKernel for Fp8LinearMethod", "W8A16KV16"),
        ("fp8, tensor, static", "Selected CutlassFP8ScaledMMLinearKernel for Fp8LinearMethod", "W8A8KV16"),
        (
            "fp8, block",
            "Your GPU does not have native support for FP8 computation but FP8 quantization is being used.",
            "W8A16KV16",
        ),
        ("gptq, 4 bits", "Using MarlinLinearKernel for AutoGPTQLinearMethod", "W4A16KV16"),
        (
            "compressed-tensors int4 with fp8 inputs",
            "Using CutlassW4A8LinearKernel for CompressedTensorsW4A8Fp8",
            "W4A8KV16",
        ),
        (
            "compressed-tensors int4 with int8 inputs",
            "Using MarlinLinearKernel for CompressedTensorsWNA8Int",
            "W4A16KV16",
        ),
        ("quark int4", "Using MacheteLinearKernel for mixed-precision linear", "W4A16KV16"),
    ],
)
def test_the_kernel_decides_the_activations(tmp_path: Path, recipe: str, line: str, label: str) -> None:
    executed = executed_precision(
        read(tmp_path, recipe), None, engine_line(kv_cache_dtype="auto") + "\n" + line
    )
    assert executed.label == label


@pytest.mark.parametrize(
    ("recipe", "dtype", "bits"),
    [
        ("compressed-tensors int8", "fp8", 8),
        ("compressed-tensors int8", "fp8_e5m2", 8),
        ("compressed-tensors int8", "int4_per_token_head", 4),
        ("compressed-tensors int8", "turboquant_k8v4", 6),
        ("compressed-tensors int8", "auto", 16),
        ("compressed-tensors fp8, static, fp8 KV", "auto", 8),
        ("modelopt FP8, fp8 KV", "auto", 8),
        ("quark fp8, fp8 KV", "auto", 16),
        ("compressed-tensors fp8, static, fp8 KV", "bfloat16", 16),
    ],
)
def test_the_kv_dtype_that_the_engine_started_with_goes_before_the_checkpoint(
    tmp_path: Path, recipe: str, dtype: str, bits: float
) -> None:
    executed = executed_precision(read(tmp_path, recipe), None, engine_line(kv_cache_dtype=dtype))
    assert executed.kv == bits


def test_the_metrics_label_goes_before_the_log(tmp_path: Path) -> None:
    executed = executed_precision(read(tmp_path, ""), "fp8_e4m3", engine_line(kv_cache_dtype="auto"))
    assert (executed.kv, executed.kv_cache_dtype) == (8, "fp8_e4m3")


@pytest.mark.parametrize(("measured", "bits"), [(147_464.0, 16), (73_731.0, 8), (38_000.0, 4)])
def test_the_pools_size_decides_what_the_engine_leaves_open(
    tmp_path: Path, measured: float, bits: float
) -> None:
    executed = executed_precision(
        read(tmp_path, "quark fp8, fp8 KV"),
        "auto",
        "",
        kv_bytes_per_token=measured,
        bf16_kv_bytes_per_token=147_456.0,
    )
    assert executed.kv == bits


def test_an_empty_log_leaves_what_was_read(tmp_path: Path) -> None:
    executed = executed_precision(read(tmp_path, "gptq, 4 bits"), None, "")
    assert (executed.label, executed.kernels) == ("W4A16KV16", ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("W4A16KV8", (4, 16, 8)), (" w8a8kv8 ", (8, 8, 8)), ("W8A8", None), ("W8A8KV8 mixed", None), ("", None)],
)
def test_a_declared_label_is_numbers_or_nothing(text: str, expected: tuple[int, int, int] | None) -> None:
    claim = parse_label(text)
    assert (None if claim is None else (claim.weights, claim.activations, claim.kv)) == expected
