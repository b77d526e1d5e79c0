"""What an engine says it computes with."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowbit_ray.engines.accounts import chosen_kernels

FP4 = (
    "(EngineCore pid=1) WARNING 11-30 04:11:06 [marlin_utils_fp4.py:342] Your GPU does not have native "
    "support for FP4 computation but FP4 quantization is being used. Weight-only FP4 compression will be used."
)


def test_the_choices_of_a_real_server(fixtures: Path) -> None:
    assert chosen_kernels((fixtures / "vllm-0.25.1-h200-qwen3-8b-fp8.log").read_text()) == (
        "Selected CutlassFP8ScaledMMLinearKernel for Fp8PerTensorOnlineLinearMethod",
        "Using FLASH_ATTN attention backend",
        "Using FlashAttention version 3",
    )


@pytest.mark.parametrize(
    "line",
    [
        "Using MarlinLinearKernel for CompressedTensorsWNA16",
        "Using MarlinLinearKernel for AutoGPTQLinearMethod",
        "Using FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM",
        "Using ConchLinearKernel for mixed-precision linear",
    ],
)
def test_weight_only_kernels_are_listed(line: str) -> None:
    assert chosen_kernels(f"(Worker_TP0 pid=3) INFO 11-30 04:11:06 [x.py:1] {line}\n" * 2) == (line,)


def test_fp4_without_arithmetic_for_it_is_weight_only() -> None:
    assert chosen_kernels(FP4) == ("weight-only fallback: the device has no arithmetic for this format",)


def test_other_lines_are_no_choice() -> None:
    text = "(EngineCore pid=1) INFO 11-30 04:11:06 [x.py:1] Using max model len 9\nUsing cache directory: x\n"
    assert chosen_kernels(text) == ()
