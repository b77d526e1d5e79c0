"""vLLM's flags and variables on either device, from the rules, the task and a cap."""

from __future__ import annotations

from pathlib import Path

from lowbit_ray.engines.cap import Cap
from lowbit_ray.errors import ConfigError
from lowbit_ray.rules import Rules
from lowbit_ray.tasks import Task

__all__ = [
    "cache_environment",
    "cpu_environment",
    "cpu_flags",
    "gpu_environment",
    "gpu_flags",
    "max_model_len",
    "shared_flags",
]

POOL_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
"""GiB of the CPU's KV pool; it would override the flag, and vLLM reads whole GiB only, so we never pass it on."""
POOL_GIB = "4"


def shared_flags(task: Task, rules: Rules, cap: Cap | None, max_logprobs: int) -> list[str]:
    """The rules' engine flags, the task's where it has its own."""
    plan, flags = task.engine, rules.engine_flags
    return [
        *("--dtype", plan.dtype, "--seed", str(flags.seed)),
        *("--max-model-len", str(max_model_len(task, rules, cap))),
        *("--max-num-seqs", str(plan.max_num_seqs or flags.max_num_seqs)),
        *("--max-num-batched-tokens", str(plan.max_num_batched_tokens or flags.max_num_batched_tokens)),
        *("--max-logprobs", str(max_logprobs)),
        "--enable-prefix-caching" if flags.enable_prefix_caching else "--no-enable-prefix-caching",
        # Sampling defaults come from the request, never from a checkpoint's generation_config.json.
        *("--generation-config", "vllm", "--uvicorn-log-level", "warning"),
    ]


def max_model_len(task: Task, rules: Rules, cap: Cap | None) -> int:
    """Longest request: the task's or the rules', or what a cap leaves of it."""
    length = task.engine.max_model_len or rules.engine_flags.max_model_len
    return length if cap is None or cap.max_model_len is None else min(length, cap.max_model_len)


def gpu_flags(rules: Rules, cap: Cap | None, tensor_parallel: int) -> list[str]:
    """Share of memory, ranks, and how the ranks are run."""
    utilization = rules.engine_flags.gpu_memory_utilization if cap is None else cap.utilization
    # With one GPU vLLM's own choice is the engine's own process; Ray's executor is never wanted, as it
    # would ask for a placement group inside ours.
    backend = "mp" if tensor_parallel > 1 else "uni"
    return [
        *("--gpu-memory-utilization", f"{utilization:.4f}"),
        *("--tensor-parallel-size", str(tensor_parallel)),
        *("--distributed-executor-backend", backend),
    ]


def gpu_environment(gpus: tuple[str, ...], tensor_parallel: int, flashinfer: bool) -> dict[str, str]:
    """Which GPUs, the level at which 0.25.1 prints its memory accounts, and how its engine process begins.

    vLLM's command line lets that process import everything anew (`spawn`); a fork of the API server, as its Python
    interface does it, has it already and starts about ten seconds sooner. Where CUDA is in use by then vLLM spawns
    all the same.
    """
    if len(gpus) != tensor_parallel:
        raise ConfigError(
            "a server needs as many GPUs as its tensor-parallel size",
            where="gpus",
            found=len(gpus),
            expected=tensor_parallel,
        )
    environment = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "VLLM_WORKER_MULTIPROC_METHOD": "fork",
    }
    return environment if flashinfer else environment | {"VLLM_USE_FLASHINFER_SAMPLER": "0"}


def cpu_flags(task: Task, cap: Cap | None) -> list[str]:
    """The KV pool in exact bytes, and the model in the engine's own process."""
    return [
        *("--kv-cache-memory-bytes", str(_cpu_pool(task, cap))),
        *("--distributed-executor-backend", "uni"),
    ]


def cpu_environment(task: Task) -> dict[str, str]:
    """Threads of the pod, and the task's own variables.

    As a worker process of its own the model waits for messages in a loop that takes a core from its own
    threads: on two cores it serves a third less, unevenly, needs 0.45 GiB more and starts 8 s later. vLLM
    insists on one while VLLM_ENABLE_V1_MULTIPROCESSING is 1, as it would bind threads to cores there; here
    OMP_NUM_THREADS says how many.
    """
    ours = {"OMP_NUM_THREADS": str(task.pod.cpus), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    return {name: value for name, value in (ours | task.engine.environment).items() if name != POOL_VARIABLE}


def _cpu_pool(task: Task, cap: Cap | None) -> int:
    """Bytes: under a cap what it leaves, else the task's."""
    if cap is not None:
        return cap.kv_pool_bytes
    space = task.engine.environment.get(POOL_VARIABLE, POOL_GIB)
    try:
        return int(float(space) * 2**30)
    except ValueError:
        raise ConfigError(
            "the KV pool's size is not a number of GiB",
            where=f"engine.environment: {POOL_VARIABLE}",
            found=space,
        ) from None


def cache_environment(cache_dir: Path) -> dict[str, str]:
    """HOME and every compile cache inside `cache_dir`; the user's own home holds tokens."""
    return {
        "HOME": str(cache_dir),
        "HF_HOME": str(cache_dir / "huggingface"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"),
        "TRITON_CACHE_DIR": str(cache_dir / "triton"),
        "VLLM_CACHE_ROOT": str(cache_dir / "vllm"),
        "XDG_CACHE_HOME": str(cache_dir / "xdg"),
        "XDG_CONFIG_HOME": str(cache_dir / "config"),
    }
