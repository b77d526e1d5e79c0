"""What only a GPU can show: the driver's own count, a filler that is exact, an engine that is held to its cap.

Seconds each, but for the last: one whole evaluation of a small real model (`LOWBIT_GPU_WHEEL`, or the package index).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import yaml
from fakes.arena import Arena, Watching

from lowbit_ray.engines.device import CudaDevice, DevicePeak, wait_until_clean
from lowbit_ray.engines.filler import Filler
from lowbit_ray.engines.footprint import look
from lowbit_ray.evaluate import evaluate
from lowbit_ray.recheck import recheck_file
from lowbit_ray.records import Record
from lowbit_ray.session import ray_session
from lowbit_ray.tasks import TASKS


def gpus() -> int:
    """GPUs of this machine, 0 without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except Exception:  # whatever a machine without a driver raises
        return 0


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(gpus() == 0, reason="needs a GPU")]
HOLD = """
import sys, torch
held = torch.empty(int(float(sys.argv[1]) * 2**30), dtype=torch.uint8, device="cuda")
print(torch.cuda.mem_get_info()[1] / 2**30, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def device() -> CudaDevice:
    device = CudaDevice("0")
    wait_until_clean(device, timeout_s=30)
    return device


def hold(gib: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(gib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )


def test_the_total_is_cudas_and_a_process_is_seen_and_gone(device: CudaDevice) -> None:
    before = device.used_gib()
    process = hold(3.0)
    try:
        assert process.stdout is not None
        assert device.total_gib == pytest.approx(float(process.stdout.readline()), abs=0.01)
        assert 3.0 <= device.used_gib() - before < 5.0
        assert len(device.holders()) == 1
        assert not device.is_clean()
    finally:
        process.communicate()
    wait_until_clean(device, timeout_s=10)


@pytest.mark.parametrize("free", [12.94, 85.17])
def test_the_filler_leaves_what_was_asked(device: CudaDevice, free: float) -> None:
    if free > device.total_gib - 2:
        pytest.skip("a smaller GPU")
    with DevicePeak((device,)) as peak, Filler("0", free) as filler:
        assert filler.left_gib == pytest.approx(free, abs=0.1)
        assert device.total_gib - device.used_gib() == pytest.approx(free, abs=0.1)
        assert filler.alive()
    assert peak.peak_gib == pytest.approx(device.total_gib - free, abs=0.2)
    wait_until_clean(device, timeout_s=10)


def test_what_needs_more_than_the_cap_does_not_get_it(device: CudaDevice) -> None:
    with Filler("0", 6.0):
        process = hold(7.0)
        try:
            _, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode != 0


PINS = {
    "allocated": "held = torch.empty(2**31, dtype=torch.uint8, pin_memory=True).fill_(1)",
    "registered": """
held = torch.ones(2**31, dtype=torch.uint8)
assert int(torch.cuda.cudart().cudaHostRegister(held.data_ptr(), 2**31, 0)) == 0
""",
    "managed": """
import ctypes
held = ctypes.c_uint64()
assert ctypes.CDLL("libcuda.so.1").cuMemAllocManaged(ctypes.byref(held), ctypes.c_size_t(2**31), 1) == 0
ctypes.memset(held.value, 1, 2**31)
""",
}


@pytest.mark.parametrize("kind", PINS)
def test_host_memory_that_the_gpu_can_read_is_seen(kind: str) -> None:
    code = "import sys, torch\ntorch.zeros(1, device='cuda')\nprint(flush=True)\nsys.stdin.readline()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}{PINS[kind]}\nprint(flush=True)\nsys.stdin.readline()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdout.readline()
        before = look([psutil.Process(process.pid)]).host_gib
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert look([psutil.Process(process.pid)]).host_gib - before == pytest.approx(2, abs=0.2)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Fake engines on a real GPU: accounts of tens of GiB, a real filler, the driver's own count."""
    total = CudaDevice("0").total_gib
    if total < 40:
        pytest.skip("a smaller GPU")
    fields = yaml.safe_load((TASKS / "smollm2-135m.yaml").read_text())
    engine = fields["engine"] | {"device": "cuda", "start_timeout_s": 60, "environment": {}, "extra_args": []}
    pod = fields["pod"] | {"tensor_parallel": 1, "cpus": 1, "memory_gib": 0.5, "wait_s": 30}
    with ray_session(2, local=True):
        arena = Arena.build(tmp_path_factory.mktemp("arena"), engine=engine, pod=pod)
        fake = arena.root / "anchor" / "fake.json"
        fake.write_text(json.dumps(json.loads(fake.read_text()) | accounts(total, weights_gib=8.0)))
        yield arena


def accounts(total_gib: float, *, weights_gib: float) -> dict[str, object]:
    return {
        "log": "0.25.1",
        "device_gib": round(total_gib, 2),
        "size_scale": 10_000,
        "weights_gib": weights_gib,
    }


def evaluated(arena: Arena, name: str, *, cuda_gib: float) -> Record:
    told = accounts(CudaDevice("0").total_gib, weights_gib=4.0)
    candidate = arena.candidate(name, noise=0.02, cuda_gib=cuda_gib, **told)
    submission = arena.submit(candidate)
    return evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=Watching())


def test_an_engine_that_needs_what_it_says_is_healthy_under_its_caps(
    arena: Arena, device: CudaDevice
) -> None:
    record = evaluated(arena, "honest", cuda_gib=4.2)
    assert record.result is not None, record.error
    assert {run.healthy for run in record.result.engine.budget.values()} == {True}
    wait_until_clean(device, timeout_s=10)


def test_an_engine_that_needs_more_than_it_says_is_caught(arena: Arena, device: CudaDevice) -> None:
    record = evaluated(arena, "liar", cuda_gib=30.0)
    assert record.status == "rejected"
    told = record.error or (record.result.reason if record.result else None)
    assert told is not None
    assert "hard cap" in told or "device" in told
    wait_until_clean(device, timeout_s=10)


@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs the gpu extra")
def test_a_small_real_model_becomes_a_record(tmp_path: Path) -> None:
    wheel = os.environ.get("LOWBIT_GPU_WHEEL")
    started = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.gpu.run", "--plan", "smollm2-bf16", "--minutes", "14"),
            *("--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")),
            *(("--wheel", wheel) if wheel else ()),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=880,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = tmp_path / "out" / "record-smollm2-bf16.json"
    assert {check.status for check in recheck_file(record)} == {"agrees"}
    assert time.monotonic() - started < 880
