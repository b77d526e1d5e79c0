"""Start-up logs of releases that no fixture is of: those of 0.25.1, reworded as the release's sources print.

The wording was read in vllm/v1/worker/gpu_worker.py and vllm/v1/core/kv_cache_utils.py of 0.26.0, 0.27.0,
0.27.1, 0.28.0, 0.29.0, 0.30.0 and 0.32.0; amounts stay those of the real 0.25.1 run.
"""

from __future__ import annotations

import re

ITEMIZED = re.compile(
    r"Actual usage is (\S+) GiB for weight, (\S+) GiB for peak activation, "
    r"(\S+) GiB for non-torch memory, and (\S+) GiB for CUDAGraph memory"
)
TWO_LINES = re.compile(
    r"GPU KV cache size: ([\d,]+) tokens\n.*Maximum concurrency for ([\d,]+) tokens per request: (\S+)x"
)


def reword(log: str, release: str) -> str:
    """The 0.25.1 log as `release` would have printed it."""
    minor = int(release.split(".")[1])
    text = log.replace("(v0.25.1)", f"(v{release})").replace("DEBUG", "INFO")
    if minor >= 27:
        text = _consumed(text)
    if minor >= 28:
        text = text.replace(" GiB and ", " GiB memory and ")
        text = TWO_LINES.sub(
            r"GPU KV cache size: \1 tokens, Maximum concurrency for \2 tokens per request: \3x", text
        )
    return text


def _consumed(text: str) -> str:
    """Weights and non-torch memory in one sum; the applied estimate within the activation."""
    estimate = re.search(r"\(actual\), (\S+) GiB \(estimated\)", text)
    applied = float(estimate[1]) if estimate else 0.0

    def line(match: re.Match[str]) -> str:
        weights, activation, non_torch, graphs = (float(part) for part in match.groups())
        return (
            f"Actual usage is {weights + non_torch:.2f} GiB for consumed memory (weights + non-torch), "
            f"{activation + applied:.2f} GiB for peak activation, and {graphs:g} GiB for CUDAGraph memory"
        )

    return ITEMIZED.sub(line, text)


def with_pool(metrics: str, tokens: int, length: int) -> str:
    """A /metrics text whose cache configuration has a pool of so many tokens."""
    text = re.sub(r'kv_cache_size_tokens="\d+"', f'kv_cache_size_tokens="{tokens}"', metrics)
    return re.sub(r'kv_cache_max_concurrency="[\d.]+"', f'kv_cache_max_concurrency="{tokens / length}"', text)


def of_rank(log: str, rank: int) -> str:
    """The lines of one more tensor-parallel worker, as far as every rank prints them."""
    kept = [line for line in log.splitlines() if "Actual usage is" in line or " GiB and " in line]
    return "\n".join(line.replace("(EngineCore", f"(Worker_TP{rank}") for line in kept)
