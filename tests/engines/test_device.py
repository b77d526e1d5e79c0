"""Devices seen from outside: the CPU's twin for real, a GPU through a stand-in for NVML's C library."""

# ruff: noqa: N802, N815 - the names are NVML's

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from lowbit_ray.engines.device import CpuDevice, CudaDevice, DevicePeak, wait_until_clean
from lowbit_ray.engines.host import describe_host
from lowbit_ray.errors import PodError

GIB = 2**30


class NVMLError(Exception):
    """As pynvml has it."""


class Nvml(ModuleType):
    """NVML of one H200; `used`, `running` and `fails` are set by tests."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    nvmlMemory_v2 = 2

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.used = 0.0
        self.running: list[SimpleNamespace] = []
        self.fails = False

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index:
            raise NVMLError("Invalid Argument")
        return "handle"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        assert uuid == "GPU-7"
        return "handle"

    def nvmlDeviceGetMemoryInfo(self, _: str, version: int) -> SimpleNamespace:
        assert version == self.nvmlMemory_v2
        if self.fails:
            raise NVMLError("GPU is lost")
        reserved = int(0.6 * GIB)
        return SimpleNamespace(total=int(140.4 * GIB), reserved=reserved, used=int(self.used * GIB))

    def nvmlDeviceGetComputeRunningProcesses(self, _: str) -> list[SimpleNamespace]:
        return self.running

    def nvmlDeviceGetName(self, _: str) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, _: str) -> str:
        return "GPU-7"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12090

    def nvmlDeviceGetMaxClockInfo(self, _: str, kind: int) -> int:
        if kind == self.NVML_CLOCK_MEM:
            raise NVMLError("Not Supported")
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, _: str) -> int:
        return 700_000


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    module = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


@pytest.mark.parametrize("which", ["0", "GPU-7"])
def test_a_gpu_is_found_by_index_and_by_uuid(nvml: Nvml, which: str) -> None:
    nvml.used = 0.5
    device = CudaDevice(which)
    assert device.total_gib == pytest.approx(139.8)  # without the driver's reserve
    assert device.used_gib() == pytest.approx(0.5)


def test_an_unknown_gpu_is_named(nvml: Nvml) -> None:
    with pytest.raises(PodError, match="GPU 3"):
        CudaDevice("3")


def test_a_gpu_says_what_it_is_and_what_it_does_not_say(nvml: Nvml) -> None:
    identity = CudaDevice("0").identity()
    assert (identity.name, identity.uuid, identity.driver) == ("NVIDIA H200", "GPU-7", "580.1")
    assert identity.cuda == "12.9"
    assert (identity.clock_mhz, identity.memory_clock_mhz, identity.power_limit_w) == (1980, None, 700.0)


def test_a_gpu_with_a_process_is_not_clean(nvml: Nvml) -> None:
    assert CudaDevice("0").is_clean()
    nvml.running = [SimpleNamespace(pid=4711, usedGpuMemory=None)]
    assert not CudaDevice("0").is_clean()


def test_memory_left_behind_by_nobody_is_not_clean(nvml: Nvml) -> None:
    nvml.used = 34.0
    assert not CudaDevice("0").is_clean()
    nvml.used = 0.2
    assert CudaDevice("0").is_clean()
    assert not CudaDevice("0").is_clean(baseline_gib=0.0)


def test_a_gpu_is_waited_for_and_its_holders_named(nvml: Nvml) -> None:
    nvml.used, nvml.running = 34.0, [SimpleNamespace(pid=4711, usedGpuMemory=33 * GIB)]
    with pytest.raises(PodError, match="not clean") as caught:
        wait_until_clean(CudaDevice("0"), timeout_s=0.3)
    assert caught.value.found == "34.00 GiB in use by pid 4711 33.00 GiB"


def test_a_lost_gpu_is_our_fault(nvml: Nvml) -> None:
    device = CudaDevice("0")
    nvml.fails = True
    with pytest.raises(PodError, match="GPU is lost"):
        device.used_gib()


def test_a_gpu_without_memory_of_its_own_is_refused(nvml: Nvml) -> None:
    device = CudaDevice("0")
    nvml.fails = True  # NVML answers "Not Supported" where memory is the host's
    with pytest.raises(PodError, match="unified memory"):
        _ = device.total_gib


def test_a_peak_is_kept(nvml: Nvml) -> None:
    with DevicePeak((CudaDevice("0"),), interval_s=0.01) as peak:
        nvml.used = 100.0
        time.sleep(0.1)
        nvml.used = 0.0
        time.sleep(0.05)
    assert peak.peak_gib == pytest.approx(100.0)
    assert peak.error is None


def test_a_peak_that_was_not_watched_to_the_end_says_so(nvml: Nvml) -> None:
    with DevicePeak((CudaDevice("0"),), interval_s=0.01) as peak:
        nvml.fails = True
        time.sleep(0.1)
    assert isinstance(peak.error, PodError)


def test_without_a_driver_the_remedy_is_given() -> None:
    with pytest.raises(PodError, match="NVIDIA driver"):
        CudaDevice("0")


def test_the_cpus_twin_counts_the_hosts_memory() -> None:
    device = CpuDevice()
    assert 0 < device.used_gib() < device.total_gib
    assert device.is_clean()
    assert device.identity().name


def test_a_host_is_told_apart_without_its_name(nvml: Nvml) -> None:
    host = describe_host((CudaDevice("0"), CpuDevice()))
    assert len(host.host) == 12
    assert [gpu.uuid for gpu in host.gpus] == ["GPU-7"]
    assert host.python.startswith("3.")
    assert host.cpus >= 1
    assert describe_host() == describe_host(())
