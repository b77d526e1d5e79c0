"""The sandbox on a host with GPUs: an engine sees those of its pod, can use them, and no others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest

from lowbit_ray.engines.device import CudaDevice
from lowbit_ray.engines.isolation import Enclosure
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.sandbox import sandbox_support
from lowbit_ray.engines.spec import EngineSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not sandbox_support().user, reason=f"no sandbox: {sandbox_support().reason}"),
]
ENGINE = """
import ctypes, json, sys
from pathlib import Path
sys.argv[1:] = ["good"]
cuda = ctypes.CDLL("libcuda.so.1")
found = {"init": cuda.cuInit(0), "names": sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))}
count, device, context, pointer = (ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64())
cuda.cuDeviceGetCount(ctypes.byref(count))
found["count"] = count.value
uuids = []
for index in range(count.value):
    cuda.cuDeviceGet(ctypes.byref(device), index)
    raw = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid_v2(raw, device)
    uuids.append(bytes(raw).hex())
found["uuids"] = uuids
cuda.cuDeviceGet(ctypes.byref(device), 0)
found["context"] = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
cuda.cuCtxSetCurrent(context)
found["alloc"] = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(2**31))
found["memset"] = cuda.cuMemsetD8_v2(pointer, 1, ctypes.c_size_t(2**31))
print(json.dumps(found), flush=True)
import servers
servers.serve()
"""


def gpus() -> list[str]:
    """Their indices; none without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # whatever a machine without a driver raises
        return []


@pytest.mark.parametrize("which", gpus())
def test_an_engine_has_the_pods_gpu_and_no_other(tmp_path: Path, which: str) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    servers = Path(__file__).parents[1] / "engines" / "servers.py"
    (folder / "servers.py").write_text(servers.read_text())
    (folder / "engine.py").write_text(ENGINE)
    device = CudaDevice(which)
    before = device.used_gib()
    spec = EngineSpec(
        kind="launch",
        device="cuda",
        command=(sys.executable, str(folder / "engine.py")),
        environment={"CUDA_VISIBLE_DEVICES": which, "PATH": "/usr/bin:/bin"},
        folder=folder,
        model_dir=folder,
        start_timeout_s=60,
        enclosure=Enclosure(
            foreign=True,
            required=True,
            programs=(Path(sys.executable),),
            cache_dir=tmp_path / "cache" / "candidate",
            memory_gib=32,
            processes=512,
        ),
    )
    engine = EngineProcess(spec.with_devices(device.files()), tmp_path / "engine.log")
    with engine:
        found = json.loads(engine.log().splitlines()[0])
        assert {key: found[key] for key in ("init", "context", "alloc", "memset")} == dict.fromkeys(
            ("init", "context", "alloc", "memset"), 0
        )
        assert found["count"] == 1
        assert found["uuids"] == [device.identity().uuid.removeprefix("GPU-").replace("-", "")]
        assert found["names"] == [device.files()[0].name]
        assert device.used_gib() > before + 2
        tree = engine.tree()
    assert not any(psutil.pid_exists(one.pid) for one in tree)
