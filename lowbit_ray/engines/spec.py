"""What to start: the command, the environment and the names of one server, as plain picklable data.

`vllm_spec` describes our own vLLM on a GPU or on a CPU, `launch_spec` a participant's `launch.sh serve`. A
spec is made in the driver and started elsewhere, so nothing here looks at the machine: the port is chosen
at the start (`{port}` in the command), and of the host's own environment only the variables named in
`inherits` are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lowbit_ray.engines.cap import Cap
from lowbit_ray.errors import ConfigError
from lowbit_ray.rules import Rules
from lowbit_ray.tasks import Task

__all__ = ["PORT", "SERVED_NAME", "EngineSpec", "launch_spec", "vllm_spec"]

PORT = "{port}"
"""Stands in a command for the port that is chosen at the start."""
SERVED_NAME = "lowbit"
"""The model's name in requests, the same for every engine."""

HOST_VARIABLES = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
"""What any engine may see of the host's environment."""
OUR_VARIABLES = ("CUDA_HOME", "PYTHONPATH", "VIRTUAL_ENV")
"""What our own vLLM sees beside them, to find its installation."""
QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""No engine phones home or fetches anything: checkpoints are served from a sealed folder."""
FORBIDDEN = re.compile(
    # Ray's variables let an engine join the cluster, the others are credentials.
    r"RAY_|AWS_|AZURE_|GOOGLE_|LOWBIT_(?!MODEL_DIR|PORT|GPU_MEMORY|MAX_MODEL_LEN|SERVED_NAME|CACHE_DIR)"
    r"|HF_TOKEN|HUGGING_FACE_HUB_TOKEN|.*(SECRET|PASSWORD|CREDENTIAL|API_KEY|_TOKEN$)"
    # A start-up plan skips the memory profile, and with it the accounts (lesson 49); the developer mode
    # opens routes that change a running server.
    r"|VLLM_ENABLE_STARTUP_PLAN|VLLM_SERVER_DEV_MODE"
)
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EngineSpec(BaseModel):
    """One server, ready to be started by `EngineProcess` on any host that has the model's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["vllm", "launch"]
    """Our vLLM, or a participant's launch.sh."""
    device: Literal["cuda", "cpu"]
    command: tuple[str, ...] = Field(min_length=1)
    """Program and arguments; an argument that is `{port}` becomes the port."""
    environment: dict[str, str]
    """Variables set for the engine; names of credentials and of Ray are refused."""
    inherits: tuple[str, ...] = HOST_VARIABLES
    """Variables passed on from the host that starts it, where they are set."""
    folder: Path
    """The working directory."""
    model_dir: Path
    served_name: str = SERVED_NAME
    start_timeout_s: Positive
    """Longest wait for the first answer."""
    request_timeout_s: Positive = 600.0
    """Longest wait for the next byte of an answer."""

    @field_validator("environment", "inherits")
    @classmethod
    def _no_secrets(cls, names: Iterable[str]) -> Iterable[str]:
        for name in names:
            if FORBIDDEN.match(name):
                raise ConfigError(
                    "an engine must not be given this variable",
                    where=f"environment: {name}",
                    remedy="Remove it from the task's engine.environment.",
                )
        return names

    def command_for(self, port: int) -> list[str]:
        """The command with the port put in."""
        return [str(port) if argument == PORT else argument for argument in self.command]

    def environment_for(self, port: int, host: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the process: what it inherits of `host`, then its own variables."""
        inherited = {name: host[name] for name in self.inherits if name in host}
        return inherited | self.environment | {"LOWBIT_PORT": str(port)}


def vllm_spec(
    model_dir: Path,
    *,
    task: Task,
    rules: Rules,
    vllm_command: tuple[str, ...],
    cap: Cap | None,
    max_logprobs: int,
    cache_dir: Path,
    tensor_parallel: int,
    gpus: tuple[str, ...] = (),
    flashinfer: bool = False,
) -> EngineSpec:
    """Our vLLM on `model_dir` with the rules' engine flags, overridden by the task's.

    vllm_command  `("vllm", "serve")`, or `(python, "-m", "vllm.entrypoints.openai.api_server")`
    cap           serve under this hard cap; None for the whole device
    max_logprobs  most log-probabilities a request may ask for
    cache_dir     lasts from one server of a submission on a pod to the next: compiled graphs are kept in it
    gpus          indices or UUIDs for CUDA_VISIBLE_DEVICES, `tensor_parallel` of them
    flashinfer    whether flashinfer is installed beside vLLM; where it is not, its sampler is switched off,
                  else the start fails
    """
    plan, flags = task.engine, rules.engine_flags
    length = plan.max_model_len or flags.max_model_len
    if cap is not None and cap.max_model_len is not None:
        length = min(length, cap.max_model_len)
    prefix = "--enable-prefix-caching" if flags.enable_prefix_caching else "--no-enable-prefix-caching"
    positional = vllm_command[-1] == "serve"
    command = [
        *vllm_command,
        *([str(model_dir)] if positional else ["--model", str(model_dir)]),
        *("--host", "127.0.0.1", "--port", PORT, "--served-model-name", SERVED_NAME),
        *("--dtype", plan.dtype, "--max-model-len", str(length), "--seed", str(flags.seed)),
        *("--max-num-seqs", str(plan.max_num_seqs or flags.max_num_seqs)),
        *("--max-num-batched-tokens", str(plan.max_num_batched_tokens or flags.max_num_batched_tokens)),
        *("--max-logprobs", str(max_logprobs), prefix),
        # Sampling defaults come from the request, never from a checkpoint's generation_config.json.
        *("--generation-config", "vllm", "--uvicorn-log-level", "warning"),
        # Several API servers would each report a part of the KV gauge (lesson 36).
        *(("--api-server-count", "1") if positional else ()),
    ]
    environment = QUIET | _caches(cache_dir)
    if plan.device == "cuda":
        command += _cuda_flags(rules, cap, tensor_parallel)
        environment |= _cuda_environment(gpus, tensor_parallel, flashinfer) | plan.environment
    else:
        command += _cpu_flags(plan.environment, cap)
        environment |= _cpu_environment(task.pod.cpus) | plan.environment
        # The variable would override the flag, and knows whole GiB only.
        environment.pop("VLLM_CPU_KVCACHE_SPACE", None)
    return EngineSpec(
        kind="vllm",
        device=plan.device,
        command=(*command, *plan.extra_args),
        environment=environment,
        inherits=(*HOST_VARIABLES, *OUR_VARIABLES),
        folder=cache_dir,
        model_dir=model_dir,
        start_timeout_s=plan.start_timeout_s,
        request_timeout_s=plan.request_timeout_s,
    )


def launch_spec(
    launch_dir: Path,
    model_dir: Path,
    *,
    task: Task,
    rules: Rules,
    cap: Cap | None,
    device_total_gib: float,
    cache_dir: Path,
    gpus: tuple[str, ...] = (),
) -> EngineSpec:
    """A participant's `launch.sh serve`.

    Memory is told twice, as GiB of the whole pod and as a share of it: under a hard cap the *budget* (what
    lies between budget and cap is for the device's context and graphs), else the rules' share.
    `device_total_gib` is the pod's memory, all of its GPUs together.
    """
    plan, flags = task.engine, rules.engine_flags
    length = plan.max_model_len or flags.max_model_len
    if cap is not None and cap.max_model_len is not None:
        length = min(length, cap.max_model_len)
    utilization = flags.gpu_memory_utilization if cap is None else cap.budget_gib / device_total_gib
    script = launch_dir / "launch.sh"
    environment = QUIET | _caches(cache_dir)
    environment |= {
        "LOWBIT_CACHE_DIR": str(cache_dir),
        "LOWBIT_GPU_MEMORY_GIB": f"{utilization * device_total_gib:.3f}",
        "LOWBIT_GPU_MEMORY_UTILIZATION": f"{utilization:.4f}",
        "LOWBIT_MAX_MODEL_LEN": str(length),
        "LOWBIT_MODEL_DIR": str(model_dir),
        "LOWBIT_SERVED_NAME": SERVED_NAME,
    }
    if plan.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    else:
        environment["OMP_NUM_THREADS"] = str(task.pod.cpus)
    return EngineSpec(
        kind="launch",
        device=plan.device,
        command=("bash", str(script), "serve"),
        environment=environment,
        folder=launch_dir,
        model_dir=model_dir,
        start_timeout_s=plan.start_timeout_s,
        request_timeout_s=plan.request_timeout_s,
    )


def _caches(cache_dir: Path) -> dict[str, str]:
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


def _cuda_flags(rules: Rules, cap: Cap | None, tensor_parallel: int) -> list[str]:
    utilization = rules.engine_flags.gpu_memory_utilization if cap is None else cap.utilization
    # With one GPU vLLM's own choice is the engine's own process; Ray's executor is never wanted, as it
    # would ask for a placement group inside ours.
    backend = "mp" if tensor_parallel > 1 else "uni"
    return [
        *("--gpu-memory-utilization", f"{utilization:.4f}"),
        *("--tensor-parallel-size", str(tensor_parallel)),
        *("--distributed-executor-backend", backend),
    ]


def _cuda_environment(gpus: tuple[str, ...], tensor_parallel: int, flashinfer: bool) -> dict[str, str]:
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
        # 0.25.1 prints its memory accounts at this level only.
        "VLLM_LOGGING_LEVEL": "DEBUG",
    }
    return environment if flashinfer else environment | {"VLLM_USE_FLASHINFER_SAMPLER": "0"}


def _cpu_flags(environment: Mapping[str, str], cap: Cap | None) -> list[str]:
    return [
        *("--kv-cache-memory-bytes", str(_cpu_pool(environment, cap))),
        *("--distributed-executor-backend", "uni"),
    ]


def _cpu_environment(cpus: int) -> dict[str, str]:
    """The model runs in the engine's own process.

    As a worker of its own it waits for its messages in a loop that takes a core from the model's threads: on
    two cores it serves a third less, unevenly, needs 0.45 GiB more and starts 8 s later. vLLM insists on
    one while this variable is 1, as it would bind threads to cores there; here OMP_NUM_THREADS says how many.
    """
    return {"OMP_NUM_THREADS": str(cpus), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def _cpu_pool(environment: Mapping[str, str], cap: Cap | None) -> int:
    """Bytes of the KV pool: under a cap what it leaves, else the task's VLLM_CPU_KVCACHE_SPACE in GiB."""
    if cap is not None:
        return cap.kv_pool_bytes
    space = environment.get("VLLM_CPU_KVCACHE_SPACE", "4")
    try:
        return int(float(space) * 2**30)
    except ValueError:
        raise ConfigError(
            "the KV pool's size is not a number of GiB",
            where="engine.environment: VLLM_CPU_KVCACHE_SPACE",
            found=space,
        ) from None
