"""What an engine runs on, seen from outside of it: memory used, by whom, and what the device is.

`CudaDevice` asks NVML, whose count does not depend on what an engine says; `CpuDevice` is its twin for a
machine without a GPU. Both are cheap handles that are made where they are used, never sent.
"""

from __future__ import annotations

import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from lowbit_ray.errors import DirtyDeviceError, PodError

__all__ = [
    "CpuDevice",
    "CudaDevice",
    "Device",
    "DevicePeak",
    "Holder",
    "Identity",
    "count_gpus",
    "wait_until_clean",
]

GIB = 2**30
CLEAN_GIB = 0.25
"""A GPU that nobody uses holds less than this, beside what driver and firmware reserve."""
DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
"""What all GPUs of a host share."""
LEFT_GIB = 0.1
"""Least that counts as left behind, where the use before is known."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of a device."""

    pid: int
    gib: float
    """0 where the driver does not say."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What distinguishes one device from another of its kind, and how it was set."""

    name: str
    uuid: str
    driver: str
    cuda: str | None
    """Newest CUDA that the driver speaks; None on a CPU."""
    clock_mhz: int | None
    """Largest clock the device is allowed; None where it does not say."""
    memory_clock_mhz: int | None
    power_limit_w: float | None


class Device(Protocol):
    """One GPU, or the host's CPUs and memory."""

    @property
    def total_gib(self) -> float: ...

    def used_gib(self) -> float: ...

    def holders(self) -> tuple[Holder, ...]: ...

    def is_clean(self, baseline_gib: float | None = None) -> bool: ...

    def identity(self) -> Identity: ...

    def files(self) -> tuple[Path, ...]: ...


class CudaDevice:
    """A GPU by index or UUID, as Ray or CUDA_VISIBLE_DEVICES name it."""

    def __init__(self, which: str) -> None:
        self._nvml: Any = _nvml()
        try:
            self._handle: Any = (
                self._nvml.nvmlDeviceGetHandleByIndex(int(which))
                if which.isdigit()
                else self._nvml.nvmlDeviceGetHandleByUUID(which)
            )
        except self._nvml.NVMLError as error:
            raise PodError("NVML does not know this GPU", where=f"GPU {which}", found=str(error)) from None
        self._which = which

    @property
    def total_gib(self) -> float:
        """What programs can have: the total that CUDA, and so vLLM's gpu_memory_utilization, goes by.

        NVML's own total has the driver's reserve in it (0.6 GiB on an H200), which is nobody's to use.
        """
        memory = self._memory()
        return float(memory.total - memory.reserved) / GIB

    def used_gib(self) -> float:
        """Memory in use by programs and their contexts, without the driver's reserve."""
        return float(self._memory().used) / GIB

    def holders(self) -> tuple[Holder, ...]:
        """Processes with a compute context, those of other containers included."""
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return tuple(Holder(one.pid, (one.usedGpuMemory or 0) / GIB) for one in running)

    def is_clean(self, baseline_gib: float | None = None) -> bool:
        """Nobody computes on it, and nobody who died left memory behind.

        `baseline_gib` is what was in use before; None asks for next to nothing.
        """
        limit = CLEAN_GIB if baseline_gib is None else baseline_gib + LEFT_GIB
        return not self.holders() and self.used_gib() < limit

    def identity(self) -> Identity:
        nvml, handle = self._nvml, self._handle
        return Identity(
            name=str(nvml.nvmlDeviceGetName(handle)),
            uuid=str(nvml.nvmlDeviceGetUUID(handle)),
            driver=str(nvml.nvmlSystemGetDriverVersion()),
            cuda="{}.{}".format(*divmod(int(nvml.nvmlSystemGetCudaDriverVersion_v2()) // 10, 100)),
            clock_mhz=self._maybe(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._maybe(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
            power_limit_w=self._watts(),
        )

    def files(self) -> tuple[Path, ...]:
        """The device files that a program must be able to open to use it."""
        own = Path(f"/dev/nvidia{self._nvml.nvmlDeviceGetMinorNumber(self._handle)}")
        return (own, *(path for path in map(Path, DRIVER_FILES) if path.exists()))

    def _memory(self) -> Any:
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(self._handle, version=self._nvml.nvmlMemory_v2)
        except self._nvml.NVMLError as error:
            raise PodError(
                "the GPU does not tell its memory",
                where=f"GPU {self._which}",
                found=str(error),
                remedy="Take a lost GPU's node out of service; hosts with unified memory cannot measure.",
            ) from None

    def _maybe(self, ask: Any, *arguments: object) -> int | None:
        """A figure that some devices do not offer."""
        try:
            return int(ask(self._handle, *arguments))
        except self._nvml.NVMLError:
            return None

    def _watts(self) -> float | None:
        milliwatts = self._maybe(self._nvml.nvmlDeviceGetEnforcedPowerLimit)
        return None if milliwatts is None else milliwatts / 1000


def _nvml() -> Any:
    """The initialized NVML module; PodError where there is no driver."""
    import pynvml  # here, as a machine without a GPU need not have it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise PodError(
            "no NVIDIA driver answers",
            where="NVML",
            found=str(error),
            remedy="Run tasks with engine.device cpu here, or install the driver.",
        ) from None
    return pynvml


def count_gpus() -> int:
    """How many GPUs the driver knows; PodError where there is no driver."""
    return int(_nvml().nvmlDeviceGetCount())


class CpuDevice:
    """The host's memory. An engine's own share of it is its process tree's (`EngineProcess.resident`)."""

    @property
    def total_gib(self) -> float:
        return psutil.virtual_memory().total / GIB

    def used_gib(self) -> float:
        memory = psutil.virtual_memory()
        return (memory.total - memory.available) / GIB

    def holders(self) -> tuple[Holder, ...]:
        """Nobody: a host's memory is shared by design, and no lease is exclusive."""
        return ()

    def is_clean(self, baseline_gib: float | None = None) -> bool:
        return True

    def files(self) -> tuple[Path, ...]:
        return ()

    def identity(self) -> Identity:
        frequency = psutil.cpu_freq()
        return Identity(
            name=_cpu_model(),
            uuid="",
            driver="",
            cuda=None,
            clock_mhz=int(frequency.max or frequency.current) if frequency else None,
            memory_clock_mhz=None,
            power_limit_w=None,
        )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def wait_until_clean(device: Device, *, baseline_gib: float | None = None, timeout_s: float = 60.0) -> None:
    """Waits until nobody holds memory of the device beyond `baseline_gib`, as `is_clean` has it.

    A server's port is free before its memory is, so a device is asked, not assumed.
    DirtyDeviceError that names the holders when the time is up: the node goes into quarantine.
    """
    deadline = time.monotonic() + timeout_s
    while not device.is_clean(baseline_gib):
        if time.monotonic() > deadline:
            holders = (
                ", ".join(f"pid {one.pid} {one.gib:.2f} GiB" for one in device.holders()) or "nobody seen"
            )
            raise DirtyDeviceError(
                "the device is not clean",
                where=device.identity().uuid,
                found=f"{device.used_gib():.2f} GiB in use by {holders}",
                expected="what it was before, and no process",
                remedy="End those processes, then `lowbit doctor --release` the node.",
            )
        time.sleep(0.25)


class DevicePeak:
    """The largest use of memory of some devices together, sampled by a thread.

    with DevicePeak(devices) as peak: ...
    """

    def __init__(self, devices: tuple[Device, ...], interval_s: float = 0.1) -> None:
        self._devices = devices
        self._interval_s = interval_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-peak", daemon=True)
        self.peak_gib = 0.0
        self.error: PodError | None = None
        """Why it stopped early, if it did: a peak that was not watched is not known."""

    def sample(self) -> float:
        """GiB in use now, all devices together."""
        now = sum(device.used_gib() for device in self._devices)
        self.peak_gib = max(self.peak_gib, now)
        return now

    def __enter__(self) -> DevicePeak:
        self.sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self.error is None:
            self.sample()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            try:
                self.sample()
            except PodError as error:
                self.error = error
                return
