"""Weights or KV blocks in host memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowbit_ray.engines.accounts import cache_config, offload_findings


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("Offloader set to UVAOffloader", "weights: the UVAOffloader is on"),
        ("Total CPU offloaded parameters: 4.0", "weights: 4.0 GiB in host memory"),
        (
            "[PrefetchOffloader] Initialized 12 modules. Total GPU memory",
            "weights: 12 modules prefetched from the host",
        ),
        ("non-default args: {'cpu_offload_gb': 4.0, 'port': 1}", "weights: --cpu-offload-gb 4.0"),
        ("non-default args: {'kv_offloading_size': 8.0}", "KV: --kv-offloading-size 8.0"),
        ("Creating offloading spec with name: CPUOffloadingSpec", "KV: offloading spec CPUOffloadingSpec"),
        (
            "SimpleCPUOffloadScheduler: Allocating 512 offload blocks (1.00 GB",
            "KV: 512 blocks in host memory",
        ),
        (
            "Creating v1 connector with name: OffloadingConnector and engine_id: x",
            "KV: connector OffloadingConnector",
        ),
        ("Creating v1 connector with name: LMCacheMPConnector and", "KV: connector LMCacheMPConnector"),
        ("GPU + host KV cache size: 1,000 tokens", "KV: pool in GPU + host memory"),
        ("load_tensors: offloaded 20/37 layers to GPU", "weights: only 20/37 layers on the GPU"),
        ("llama_kv_cache:        CPU KV buffer size =   144.00 MiB", "KV: 144.00 MiB in host memory"),
        ("server_args=ServerArgs(cpu_offload_gb=4, tp_size=1)", "weights: cpu_offload_gb 4"),
        ("ServerArgs(enable_hierarchical_cache=True)", "KV: hierarchical cache in host memory"),
    ],
)
def test_an_offload_line_is_recognized(line: str, finding: str) -> None:
    assert offload_findings(f"INFO {line}\n") == (finding,)


@pytest.mark.parametrize(
    "line",
    [
        "Offloader set to NoopOffloader (no offloading).",
        "Total CPU offloaded parameters: 0.0",
        "non-default args: {'cpu_offload_gb': 0, 'swap_space': 0.0}",
        "non-default args: {'kv_offloading_size': None}",
        "Creating v1 connector with name: NixlConnector and engine_id: x",
        "load_tensors: offloaded 37/37 layers to GPU",
        "llama_kv_cache:      CUDA0 KV buffer size =   144.00 MiB",
        "ServerArgs(cpu_offload_gb=0, enable_hierarchical_cache=False)",
        "GPU KV cache size: 1,000 tokens",
    ],
)
def test_a_line_that_says_nothing_is_offloaded_is_no_finding(line: str) -> None:
    assert offload_findings(line) == ()


@pytest.mark.parametrize("name", ["qwen3-8b-bf16.log", "qwen3-8b-fp8.log", "qwen35-27b-bf16.log"])
def test_real_servers_offload_nothing(fixtures: Path, name: str) -> None:
    config = cache_config((fixtures / "vllm-0.25.1-h200.metrics").read_text())
    assert offload_findings((fixtures / f"vllm-0.25.1-h200-{name}").read_text(), config) == ()


def test_the_metrics_alone_are_enough() -> None:
    config = {"kv_offloading_size": "8.0", "num_cpu_blocks": "512", "swap_space": "0"}
    assert offload_findings("", config) == ("KV: 512 blocks in host memory", "KV: kv_offloading_size 8.0")
