"""Start-up log lines in the words of vLLM 0.25.1 (V2 runner) and of its CPU build 0.32.0, and /metrics."""

from __future__ import annotations

import os

from state import State
from told import GIB, Told

__all__ = ["failure", "metrics_text", "startup_lines"]

STAMP = "11-30 04:11:00"


def failure(told: Told) -> str | None:
    """vLLM's own words where the pool cannot hold one request of the full length."""
    if told.faults.dead_at_load:
        return "RuntimeError: Engine core initialization failed. See root cause above."
    needed = told.flags.max_model_len * told.kv_bytes_per_token
    if needed <= told.pool_bytes:
        return None
    return (
        f"ValueError: To serve at least one request with the models's max seq len "
        f"({told.flags.max_model_len}), ({needed / GIB:.2f} GiB KV cache is needed, which is larger than the "
        f"available KV cache memory ({told.pool_bytes / GIB:.2f} GiB). Based on the available memory, the "
        f"estimated maximum model length is {told.pool_tokens}. Try increasing `gpu_memory_utilization` or "
        f"decreasing `max_model_len` when initializing the engine."
    )


def startup_lines(told: Told) -> tuple[list[str], list[str]]:
    """Lines before the pool is known to suffice, and those after."""
    return _cpu_lines(told) if told.log == "cpu" else _gpu_lines(told)


def _engine(level: str, place: str, text: str) -> str:
    return f"(EngineCore pid={os.getpid()}) {level} {STAMP} [{place}] {text}"


def _api(place: str, text: str) -> str:
    return f"(APIServer pid={os.getpid()}) INFO {STAMP} [{place}] {text}"


def _start(told: Told, version: str, place: str) -> str:
    model = told.folder
    return _engine(
        "INFO",
        place,
        f"Initializing a V1 LLM engine (v{version}) with config: model='{model}', speculative_config=None, "
        f"tokenizer='{model}', skip_tokenizer_init=False, tokenizer_mode=auto, revision=None, "
        f"dtype=torch.bfloat16, max_seq_len={told.flags.max_model_len}, load_format=auto, "
        "tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, "
        f"quantization_config=None, enforce_eager=False, device_config={'cpu' if told.log == 'cpu' else 'cuda'}, "
        f"kv_cache_dtype={told.flags.kv_cache_dtype}, enable_prefix_caching=False, seed=0",
    )


def _gpu_lines(told: Told) -> tuple[list[str], list[str]]:
    flags, total, free = told.flags, told.device_gib, told.device_gib - 0.51
    worker = "v1/worker/gpu_worker.py"
    utilization = flags.gpu_memory_utilization
    pool_gib = round(told.pool_bytes / GIB, 2)
    before = [
        _api("entrypoints/.../utils/api_utils.py:339", "  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.25.1"),
        _api("config/model.py:619", "Resolved architecture: LlamaForCausalLM"),
        _start(told, "0.25.1", "v1/engine/core.py:114"),
        _engine("INFO", f"{worker}:360", "Using V2 Model Runner"),
        _engine(
            "INFO",
            "v1/worker/gpu/model_runner.py:302",
            f"Model loading took {told.weights_gib} GiB and 0.853130 seconds",
        ),
    ]
    if flags.kv_cache_memory_bytes:
        before.append(
            _engine(
                "INFO",
                f"{worker}:480",
                f"Initial free memory {free:.2f} GiB, reserved {pool_gib} GiB memory for KV Cache as "
                "specified by kv_cache_memory_bytes config and skipped memory profiling. This does not respect "
                "the gpu_memory_utilization config. Only use kv_cache_memory_bytes config when you want manual "
                "control of KV cache memory size.",
            )
        )
    else:
        before.append(_engine("INFO", f"{worker}:538", f"Available KV cache memory: {pool_gib} GiB"))
    after = [
        _engine("INFO", "v1/core/kv_cache_utils.py:2146", f"GPU KV cache size: {told.pool_tokens:,} tokens"),
        _engine(
            "INFO",
            "v1/core/kv_cache_utils.py:2147",
            f"Maximum concurrency for {flags.max_model_len:,} tokens per request: "
            f"{told.pool_tokens / flags.max_model_len:.2f}x",
        ),
        _engine(
            "INFO",
            "v1/worker/gpu/model_runner.py:722",
            f"Graph capturing finished in 5 secs, took {told.graphs_gib:.2f} GiB",
        ),
    ]
    if not flags.kv_cache_memory_bytes:
        after.append(
            _engine(
                "DEBUG",
                f"{worker}:835",
                f"Free memory on device ({free:.2f}/{total} GiB) on startup. Desired GPU memory utilization "
                f"is ({utilization}, {utilization * total:.2f} GiB). Actual usage is {told.weights_gib} GiB "
                f"for weight, {told.activation_gib} GiB for peak activation, {told.non_torch_gib} GiB for "
                f"non-torch memory, and {told.graphs_gib} GiB for CUDAGraph memory. Replace "
                f"gpu_memory_utilization config with `--kv-cache-memory={told.pool_bytes}` ({pool_gib} GiB) "
                f"to fit into requested memory. Current kv cache memory in use is {pool_gib} GiB.",
            )
        )
    after.append(
        _engine(
            "INFO",
            "v1/engine/core.py:337",
            "init engine (profile, create kv cache, warmup model) took 1.25 s (compilation: 0.00 s)",
        )
    )
    return before, after


def _cpu_lines(told: Told) -> tuple[list[str], list[str]]:
    pool_gib = round(told.pool_bytes / GIB, 2)
    size = told.flags.max_model_len
    worker = f"(Worker pid={os.getpid()}) INFO {STAMP}"
    before = [
        _api("api_utils.py:347", "  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0"),
        _start(told, "0.32.0", "core.py:133"),
        f"{worker} [cpu_model_runner.py:68] Starting to load model {told.folder}...",
        f"{worker} [weight_utils.py:1108] Filesystem type for checkpoints: EXT4. Checkpoint size: "
        f"{told.weights_gib:.2f} GiB. Available RAM: 21.17 GiB.",
        f"{worker} [default_loader.py:501] Loading weights took 0.23 seconds",
        f"{worker} [cpu_worker.py:260] Explicitly set ({pool_gib}/10.96) GiB for KV cache on node 0.",
    ]
    after = [
        _engine(
            "INFO",
            "kv_cache_utils.py:2327",
            f"CPU KV cache size: {told.pool_tokens:,} tokens, Maximum concurrency for {size:,} tokens per "
            f"request: {told.pool_tokens / size:.2f}x",
        ),
        _engine("INFO", "core.py:402", "init engine (profile, create kv cache, warmup model) took 1.22 s"),
    ]
    return before, after


def metrics_text(state: State) -> str:
    """Prometheus text with vLLM's names."""
    told, pool = state.told, state.pool
    label = f'{{engine="0",model_name="{state.name}"}}'
    gauge = "gpu_cache_usage_perc" if told.faults.old_gauge else "kv_cache_usage_perc"
    usage = 0.0 if told.faults.zero_gauge else pool.usage
    memory = str(told.pool_bytes) if told.flags.kv_cache_memory_bytes or told.log == "cpu" else "None"
    info = (
        f'block_size="16",cache_dtype="{told.flags.kv_cache_dtype}",enable_prefix_caching="False",engine="0",'
        f'gpu_memory_utilization="{told.flags.gpu_memory_utilization}",'
        f'kv_cache_max_concurrency="{told.pool_tokens / told.flags.max_model_len}",'
        f'kv_cache_memory_bytes="{memory}",kv_cache_size_tokens="{told.pool_tokens}",'
        f'num_cpu_blocks="None",num_gpu_blocks="{told.pool_tokens // 16}"'
    )
    values = {
        "num_requests_running": ("gauge", pool.running),
        "num_requests_waiting": ("gauge", len(pool.waiting)),
        gauge: ("gauge", usage),
        "prefix_cache_queries_total": ("counter", state.prefix_hits),
        "prefix_cache_hits_total": ("counter", state.prefix_hits),
        "generation_tokens_total": ("counter", state.generated),
        "request_queue_time_seconds_count": ("counter", state.queued),
        "request_queue_time_seconds_sum": ("counter", state.queue_s),
    }
    lines = [
        line
        for key, (kind, value) in values.items()
        for line in (f"# TYPE vllm:{key} {kind}", f"vllm:{key}{label} {float(value)}")
    ]
    lines += ["# TYPE vllm:cache_config_info gauge", f"vllm:cache_config_info{{{info}}} 1.0", ""]
    return "\n".join(lines)
