"""What to start: the command, the environment and the names of one server, as plain picklable data.

`vllm_spec` describes our own vLLM on a GPU or on a CPU, `launch_spec` a participant's `launch.sh serve`. A
spec is made in the driver and started elsewhere, so nothing here looks at the machine: the port is chosen
at the start (`{port}` in the command), and of the host's own environment only the variables named in
`inherits` are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.flags import (
    cache_environment,
    cpu_environment,
    cpu_flags,
    gpu_environment,
    gpu_flags,
    max_model_len,
    shared_flags,
)
from lowbit_ray.engines.isolation import Enclosure
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
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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
    # A start-up plan skips the memory profile, and with it the accounts; the developer mode
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
    enclosure: Enclosure | None = None
    """The sandbox it is put into, on the engine track."""
    host_memory_gib: Positive | None = None
    """Host memory of all its processes together, where no sandbox limits it: a cap on a CPU."""

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

    def with_devices(self, files: Iterable[Path]) -> EngineSpec:
        """The same, with the pod's device files in its sandbox; they are only known where it is started."""
        if self.enclosure is None:
            return self
        shown = self.enclosure.model_copy(update={"devices": tuple(dict.fromkeys(files))})
        return self.model_copy(update={"enclosure": shown})

    def held_to(self, cap: Cap | None) -> EngineSpec:
        """The same, with the host memory that a cap on a CPU leaves it; a sandbox's own limit says that already."""
        if cap is None or self.device == "cuda" or self.enclosure is not None:
            return self
        return self.model_copy(update={"host_memory_gib": cap.cap_gib})

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
    tokenizer_dir: Path | None = None,
    enclosure: Enclosure | None = None,
) -> EngineSpec:
    """Our vLLM on `model_dir` with the rules' engine flags, overridden by the task's.

    vllm_command  `("vllm", "serve")`, or `(python, "-m", "vllm.entrypoints.openai.api_server")`
    cap           serve under this hard cap; None for the whole device
    max_logprobs  most log-probabilities a request may ask for
    cache_dir     lasts from one server of a submission on a pod to the next: compiled graphs are kept in it
    gpus          indices or UUIDs for CUDA_VISIBLE_DEVICES, `tensor_parallel` of them
    tokenizer_dir the source's, for a candidate: its own tokenizer and chat template decide nothing then
    flashinfer    whether flashinfer is installed beside vLLM; where it is not, its sampler is switched off,
                  else the start fails
    """
    environment = QUIET | cache_environment(cache_dir)
    if task.engine.device == "cuda":
        flags = gpu_flags(rules, cap, tensor_parallel)
        environment |= gpu_environment(gpus, tensor_parallel, flashinfer) | task.engine.environment
    else:
        flags = cpu_flags(task, cap)
        environment |= cpu_environment(task)
    return EngineSpec(
        kind="vllm",
        device=task.engine.device,
        command=(
            *_of_model(vllm_command, model_dir, tokenizer_dir),
            *shared_flags(task, rules, cap, max_logprobs),
            *flags,
            *task.engine.extra_args,
        ),
        environment=environment,
        inherits=(*HOST_VARIABLES, *OUR_VARIABLES),
        folder=cache_dir,
        model_dir=model_dir,
        start_timeout_s=task.engine.start_timeout_s,
        request_timeout_s=task.engine.request_timeout_s,
        enclosure=enclosure,
    )


def _of_model(vllm_command: tuple[str, ...], model_dir: Path, tokenizer_dir: Path | None) -> Iterator[str]:
    """The beginning of the command: what is served, where and by which name."""
    serve = vllm_command[-1] == "serve"
    yield from vllm_command
    yield from ([str(model_dir)] if serve else ["--model", str(model_dir)])
    yield from ("--host", "127.0.0.1", "--port", PORT, "--served-model-name", SERVED_NAME)
    yield from (("--tokenizer", str(tokenizer_dir)) if tokenizer_dir is not None else ())
    # Several API servers would each report a part of the KV gauge.
    yield from (("--api-server-count", "1") if serve else ())


def _memory_to_plan_for(task: Task, rules: Rules, cap: Cap | None, total_gib: float) -> tuple[float, float]:
    """GiB, and as a share of the device, or of what the task lets an engine have of a host's memory."""
    if task.engine.device == "cpu":
        total_gib = min(total_gib, task.pod.memory_gib)
    share = rules.engine_flags.gpu_memory_utilization if cap is None else min(1.0, cap.budget_gib / total_gib)
    return share * total_gib, share


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
    python: Path | None = None,
    enclosure: Enclosure | None = None,
) -> EngineSpec:
    """A participant's `launch.sh serve`.

    `python` is the interpreter of our vLLM's environment: its folder comes first in PATH, so that `python` and
    `vllm` are ours where the participant brings none.

    Memory is told twice, as GiB of the whole pod and as a share of it: under a hard cap the *budget* (what
    lies between budget and cap is for the device's context and graphs), else the rules' share.
    `device_total_gib` is the pod's memory, all of its GPUs together; on a CPU no more than the task's of the host.
    """
    gib, utilization = _memory_to_plan_for(task, rules, cap, device_total_gib)
    environment = QUIET | cache_environment(cache_dir)
    environment |= {
        "LOWBIT_CACHE_DIR": str(cache_dir),
        "LOWBIT_GPU_MEMORY_GIB": f"{gib:.3f}",
        "LOWBIT_GPU_MEMORY_UTILIZATION": f"{utilization:.4f}",
        "LOWBIT_MAX_MODEL_LEN": str(max_model_len(task, rules, cap)),
        "LOWBIT_MODEL_DIR": str(model_dir),
        "LOWBIT_SERVED_NAME": SERVED_NAME,
        "PATH": SYSTEM_PATH if python is None else f"{python.parent}:{SYSTEM_PATH}",
    }
    if task.engine.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    else:
        environment["OMP_NUM_THREADS"] = str(task.pod.cpus)
    return EngineSpec(
        kind="launch",
        device=task.engine.device,
        command=("bash", str(launch_dir / "launch.sh"), "serve"),
        environment=environment,
        folder=launch_dir,
        model_dir=model_dir,
        start_timeout_s=task.engine.start_timeout_s,
        request_timeout_s=task.engine.request_timeout_s,
        enclosure=enclosure,
    )
