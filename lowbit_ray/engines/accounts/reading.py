"""From a start-up log and a scrape of /metrics to `Startup`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lowbit_ray.engines.accounts.cpu import read_cpu_memory
from lowbit_ray.engines.accounts.gpu import read_gpu_memory
from lowbit_ray.engines.accounts.kernels import chosen_kernels
from lowbit_ray.engines.accounts.lines import find, number, read_engine_start
from lowbit_ray.engines.accounts.metrics import amount, cache_config
from lowbit_ray.engines.accounts.offload import offload_findings
from lowbit_ray.engines.accounts.releases import Release, release_of
from lowbit_ray.engines.accounts.startup import GIB, MaxConcurrency, Startup
from lowbit_ray.errors import EngineError

__all__ = ["keeps_accounts", "read_startup"]

INIT = re.compile(r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s")
TOKENS = re.compile(r"(?P<pool>\w[\w +]*?) KV cache size: (?P<tokens>[\d,]+) tokens")
CONCURRENCY = re.compile(r"Maximum concurrency for (?P<length>[\d,]+) tokens per request: (?P<times>[\d.]+)x")
ROUNDING = 0.0051


def keeps_accounts(log: str) -> bool:
    """Whether this is the log of a vLLM server, which keeps accounts; others are measured by the device."""
    return "Initializing a V1 LLM engine (v" in log


def read_startup(
    log: str, metrics: str, *, stored_gib: float | None = None, aliases: Mapping[str, str] | None = None
) -> Startup:
    """The accounts of a vLLM server that has come up.

    metrics     text of its /metrics, for the cross-check with `vllm:cache_config_info`
    stored_gib  bytes of the checkpoint's tensors in GiB: the weights on a CPU, which prints none
    aliases     development versions by release, `{rules.vllm.package: rules.vllm.release}`

    Raises EngineError that names the unknown release, the missing line, the negative amount or the value
    that log and metrics disagree on; PodError when vLLM's own profile does not add up.
    """
    start = read_engine_start(log)
    name, release = release_of(start.version, aliases or {})
    config = cache_config(metrics)
    pool = _read_pool(log, release, config)
    if start.device == "cpu":
        memory = read_cpu_memory(log, config, stored_gib)
    else:
        memory = read_gpu_memory(log, release, start.tensor_parallel)
    return Startup(
        cuda_graph_gib=memory.graphs,
        engine_init_seconds=number(find(log, INIT, "init engine (…) took … s")[1], "init engine"),
        kv_bytes_per_token=memory.pool * GIB / pool.tokens,
        kv_cache_dtype=start.kv_cache_dtype,
        kv_cache_gib=memory.pool,
        kv_cache_tokens=pool.tokens,
        load_seconds=memory.load_seconds,
        max_concurrency=MaxConcurrency(sequences=pool.sequences, tokens_per_request=pool.length),
        speculative_config=start.speculative_config,
        vllm_version=start.version,
        weights_gib=memory.weights,
        peak_activation_gib=memory.activation,
        non_torch_gib=memory.non_torch,
        other_gib=memory.other,
        leaves_out="runtime" if memory.device == "cpu" else "",
        device=memory.device,
        kernels=chosen_kernels(log),
        kv_block_size=pool.block_size,
        kv_blocks=pool.blocks,
        # On a CPU host memory is the device.
        offload=offload_findings(log, config) if memory.device == "cuda" else (),
        quantization=start.quantization,
        release=name,
        runner="V2" if "Using V2 Model Runner" in log else "V1",
        tensor_parallel=start.tensor_parallel,
    )


@dataclass(frozen=True, slots=True)
class _Pool:
    """The KV pool as log and metrics agree on it."""

    tokens: int
    sequences: float
    length: int
    blocks: int
    block_size: int


def _read_pool(log: str, release: Release, config: Mapping[str, str]) -> _Pool:
    wording = "… KV cache size: … tokens" if release.any_device else "GPU KV cache size: … tokens"
    size = find(log, TOKENS, wording)
    concurrency = find(log, CONCURRENCY, "Maximum concurrency for … tokens per request: …x")
    tokens = int(number(size["tokens"], "KV tokens"))
    sequences = number(concurrency["times"], "maximum concurrency")
    if tokens == 0:
        raise EngineError("the KV pool holds no token", where="start-up log: KV cache size", found=0)
    _agree(tokens, amount(config, "kv_cache_size_tokens"), 0.5, "kv_cache_size_tokens")
    _agree(sequences, amount(config, "kv_cache_max_concurrency"), ROUNDING, "kv_cache_max_concurrency")
    return _Pool(
        tokens=tokens,
        sequences=sequences,
        length=int(number(concurrency["length"], "tokens per request")),
        blocks=int(amount(config, "num_gpu_blocks")),
        block_size=int(amount(config, "block_size")),
    )


def _agree(logged: float, labelled: float, tolerance: float, name: str) -> None:
    if abs(logged - labelled) > tolerance:
        raise EngineError(
            "the log and the metrics disagree",
            where=f"/metrics: vllm:cache_config_info: {name}",
            found=labelled,
            expected=f"{logged} as the start-up log says",
        )
