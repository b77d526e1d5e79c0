"""NVML of a host whose GPUs do not exist, for processes that have this folder on PYTHONPATH.

FAKE_NVML names a JSON file, {"<index>": {"used_gib": 1.5, "pids": [7]}}; a GPU that it leaves out is unused, and
{"driver": {"gone": true}} is a host whose driver does not answer, {"driver": {"hangs_s": 60}} one whose driver answers
after a minute; "count" is the number of its GPUs.
"""

# ruff: noqa: N802, N816 - the names are NVML's

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

GIB = 2**30
NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
nvmlMemory_v2 = 2


class NVMLError(Exception):
    """As pynvml has it."""


def _gpu(handle):
    state = json.loads(Path(os.environ["FAKE_NVML"]).read_text())
    return state.get(handle, {})


def nvmlInit():
    time.sleep(_gpu("driver").get("hangs_s", 0))
    if _gpu("driver").get("gone"):
        raise NVMLError("Driver Not Loaded")


def nvmlDeviceGetCount():
    return json.loads(Path(os.environ["FAKE_NVML"]).read_text()).get("count", 0)


def nvmlDeviceGetHandleByIndex(index):
    return str(index)


def nvmlDeviceGetMemoryInfo(handle, version):
    used = _gpu(handle).get("used_gib", 0.0)
    return SimpleNamespace(total=141 * GIB, reserved=GIB, used=int(used * GIB))


def nvmlDeviceGetComputeRunningProcesses(handle):
    return [SimpleNamespace(pid=pid, usedGpuMemory=GIB) for pid in _gpu(handle).get("pids", [])]


def nvmlDeviceGetName(handle):
    return "NVIDIA Imagined"


def nvmlDeviceGetUUID(handle):
    return f"GPU-{handle}"


def nvmlSystemGetDriverVersion():
    return "580.1"


def nvmlSystemGetCudaDriverVersion_v2():
    return 13000


def nvmlDeviceGetMaxClockInfo(handle, kind):
    return 1980 if kind == NVML_CLOCK_SM else 3201


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return 700_000
