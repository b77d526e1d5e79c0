"""The filler, with a driver that counts instead of one that allocates."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from lowbit_ray.engines import filler as filler_module
from lowbit_ray.engines.filler import Filler, fillers_for
from lowbit_ray.engines.filler_child import fill, fill_and_settle
from lowbit_ray.errors import PodError

GIB, MIB = 2**30, 2**20

FAKE = """
import sys
sys.path.insert(0, {engines!r})
import filler_child

class Driver:
    def __init__(self):
        self.left = {free}
    def free(self):
        return self.left
    def allocate(self, size):
        if size > self.left or {refuses}:
            return False
        self.left -= size + {overhead}
        return True

sys.exit(filler_child.main(sys.argv[1:], Driver))
"""


def fake(free: float, *, overhead: int = 0, refuses: bool = False) -> tuple[str, ...]:
    engines = str(Path(filler_module.__file__).parent)
    program = FAKE.format(engines=engines, free=int(free * GIB), overhead=overhead, refuses=refuses)
    return (sys.executable, "-c", program)


class Memory:
    """A device's memory; an allocation may cost more than its size."""

    def __init__(self, free: float, overhead: int = 0) -> None:
        self.left, self.overhead, self.calls = int(free * GIB), overhead, 0

    def free(self) -> int:
        return self.left

    def allocate(self, size: int) -> bool:
        self.calls += 1
        if size + self.overhead > self.left:
            return False
        self.left -= size + self.overhead
        return True


# ---- arithmetic


@pytest.mark.parametrize("keep", [0.0, 8.938, 32.25, 85.174, 139.0])
def test_what_is_left_is_exact_to_the_drivers_granularity(keep: float) -> None:
    memory = Memory(139.29)
    held = fill(int(keep * GIB), memory.free, memory.allocate)
    assert 0 <= memory.left - int(keep * GIB) < 2 * MIB
    assert held == int(139.29 * GIB) - memory.left


def test_allocations_that_cost_more_than_their_size_do_not_eat_into_what_is_kept() -> None:
    memory = Memory(139.29, overhead=MIB)
    fill(32 * GIB, memory.free, memory.allocate)
    assert abs(memory.left - 32 * GIB) <= 2 * MIB


def test_large_pieces_come_first() -> None:
    memory = Memory(139.29)
    fill(32 * GIB, memory.free, memory.allocate)
    assert memory.calls < 107 + 16 + 32 + 3


def test_nothing_is_allocated_where_less_is_free_than_asked() -> None:
    memory = Memory(10)
    assert fill(20 * GIB, memory.free, memory.allocate) == 0


def test_memory_that_is_given_back_late_is_filled_too() -> None:
    memory = Memory(50)

    def late() -> int:
        if memory.calls == 18:  # someone's 5 GiB come back
            memory.left, memory.calls = memory.left + 5 * GIB, 100
        return memory.left

    held, free = fill_and_settle(32 * GIB, late, memory.allocate)
    assert (held, free) == (23 * GIB, 32 * GIB)


@pytest.mark.parametrize(("cap", "fillers"), [(32.25, 1), (138.7, 1), (139.3, 0), (139.8, 0), (143.7, 0)])
def test_a_cap_as_wide_as_the_gpu_needs_no_filler(cap: float, fillers: int) -> None:
    """An engine that takes 137 of 139.8 GiB has a cap of 1.02 · 137 + 4: the GPU itself holds it."""
    assert len(fillers_for(cap, {"0": 139.8})) == fillers


def test_each_gpu_of_a_pod_is_filled_down_to_its_share() -> None:
    made = fillers_for(64.5, {"0": 139.8, "1": 139.8})
    assert [filler._free_gib for filler in made] == [32.25, 32.25]
    assert len(fillers_for(278.0, {"0": 139.8, "1": 139.8})) == 0
    assert fillers_for(64.5, {}) == []


# ---- the process


def test_a_filler_leaves_what_was_asked_and_gives_it_back() -> None:
    with Filler("0", 32.25, command=fake(139.29)) as filler:
        assert filler.left_gib == pytest.approx(32.25, abs=0.002)
        assert filler.held_gib == pytest.approx(139.29 - 32.25, abs=0.002)
        assert filler.alive()
    assert not filler.alive()


def test_a_filler_that_is_too_far_off_is_our_fault() -> None:
    with pytest.raises(PodError, match="could not leave what was asked"):
        Filler("0", 32.25, command=fake(20)).start()


def test_a_filler_that_may_not_allocate_is_our_fault() -> None:
    with pytest.raises(PodError, match="could not leave"):
        Filler("0", 32.25, command=fake(139, refuses=True)).start()


def test_without_a_driver_the_reason_is_given() -> None:
    with pytest.raises(PodError, match="did not come up") as caught:
        Filler("0", 1).start()
    assert "libcuda" in str(caught.value.found) or "cuInit" in str(caught.value.found)


def test_a_child_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filler_module, "START_S", 0.5)
    with pytest.raises(PodError, match="found nothing"):
        Filler("0", 1, command=(sys.executable, "-c", "import time; time.sleep(60)")).start()


def test_a_filler_started_in_a_thread_outlives_the_thread() -> None:
    filler = Filler("0", 32.25, command=fake(139.29))
    thread = threading.Thread(target=filler.start)
    thread.start()
    thread.join()
    time.sleep(1.0)
    assert filler.alive()
    filler.stop()


PARENT = """
import sys, time
from lowbit_ray.engines.filler import Filler
filler = Filler("0", 32.25, command={command!r}).start()
print(filler._child.pid, flush=True)
time.sleep(3600)
"""


def test_a_filler_dies_with_its_parent() -> None:
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(command=fake(139.29))],
        stdout=subprocess.PIPE,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    child.wait(5)
    assert not child.is_running()


def test_the_filler_sees_its_gpu_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "canary")
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    with pytest.raises(PodError) as caught:
        Filler("GPU-7", 1, command=(sys.executable, "-c", show)).start()
    seen = json.loads(str(caught.value.found))
    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    assert "HF_TOKEN" not in seen
