"""Weights or KV blocks in host memory, as an engine's own log and metrics report them.

On a GPU that breaks the engine rules: memory that is not the device's would not count in the peak. The
wording is that of vLLM 0.25 to 0.33 (two weight offloaders, two native KV connectors, LMCache), llama.cpp
and SGLang; host memory growth is watched beside it, as an engine may simply not say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["offload_findings"]

LOG = (
    (re.compile(r"Offloader set to (?!Noop)(\w+)"), "weights: the {} is on"),
    (
        re.compile(r"Total CPU offloaded parameters: (?!0(?:\.0+)?\b)([\d.]+)"),
        "weights: {} GiB in host memory",
    ),
    (
        re.compile(r"\[PrefetchOffloader\] Initialized (\d+) modules"),
        "weights: {} modules prefetched from the host",
    ),
    (re.compile(r"'cpu_offload_gb': (?!0(?:\.0+)?[,}])([\d.]+)"), "weights: --cpu-offload-gb {}"),
    (re.compile(r"'offload_group_size': ([1-9]\d*)"), "weights: --offload-group-size {}"),
    (re.compile(r"'kv_offloading_size': (?!None|0(?:\.0+)?[,}])([\d.]+)"), "KV: --kv-offloading-size {}"),
    (re.compile(r"'swap_space': (?!None|0(?:\.0+)?[,}])([\d.]+)"), "KV: --swap-space {}"),
    (re.compile(r"Creating offloading spec with name: (\S+)"), "KV: offloading spec {}"),
    (
        re.compile(r"SimpleCPUOffloadScheduler: Allocating (\d+) offload blocks"),
        "KV: {} blocks in host memory",
    ),
    (
        re.compile(
            r"Creating v1 connector with name: (\w*(?:Offload|LMCache|Mooncake|HF3FS|SharedStorage)\w*)"
        ),
        "KV: connector {}",
    ),
    (re.compile(r"(GPU \+ host) KV cache size"), "KV: pool in {} memory"),
    # llama.cpp: layers or the KV cache left on the host
    (re.compile(r"offloaded (?!(\d+)/\1 )(\d+/\d+) layers to GPU"), "weights: only {1} layers on the GPU"),
    (re.compile(r"CPU KV buffer size\s*=\s*(?!0\.00)([\d.]+ MiB)"), "KV: {} in host memory"),
    # SGLang
    (re.compile(r"\bcpu_offload_gb=(?!0\b)(\d+)"), "weights: cpu_offload_gb {}"),
    (re.compile(r"\benable_hierarchical_cache=(True)"), "KV: hierarchical cache in host memory"),
)
METRICS = {
    "kv_offloading_size": "KV: kv_offloading_size {}",
    "num_cpu_blocks": "KV: {} blocks in host memory",
    "swap_space": "KV: swap space of {} GiB",
}
NOTHING = {"", "None", "0", "0.0"}


def offload_findings(log: str, cache_config: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What is in host memory, one line a finding, sorted; empty if the engine reports nothing.

    `cache_config` are the labels of `vllm:cache_config_info`, where the engine has them.
    """
    found = set()
    for pattern, text in LOG:
        for match in pattern.finditer(log):
            found.add(text.format(*match.groups()))
    for label, text in METRICS.items():
        value = (cache_config or {}).get(label, "")
        if value not in NOTHING:
            found.add(text.format(value))
    return tuple(sorted(found))
