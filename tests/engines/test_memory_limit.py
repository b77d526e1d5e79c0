"""A cap on host memory against real processes that take more: by the kernel where it can, by watching elsewhere."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.cgroup import ControlGroup
from lowbit_ray.engines.memory_limit import MemoryLimit
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.errors import EngineAnswerError, EngineStartError

MakeEngine = Callable[..., EngineProcess]
MIB = 2**-10
"""Of a GiB."""
FOR_ONE = 18 * MIB


@pytest.fixture(params=["kernel", "watch"])
def keeper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to keep a limit; the kernel's where this machine lets us make control groups."""
    if request.param == "watch":
        monkeypatch.setattr(ControlGroup, "make", classmethod(lambda cls, *_, **__: cls({})))
        return "watched"
    group = ControlGroup.make("lowbit-test-probe", memory_bytes=2**30, processes=100)
    able = "memory" in group.folders
    group.close()
    if not able:
        pytest.skip("no control group with a limit on memory can be made here")
    return "cgroup"


def wait_until_dead(engine: EngineProcess) -> None:
    deadline = time.monotonic() + 15
    while engine.alive():
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.05)


def test_an_engine_within_its_limit_is_left_alone(make_engine: MakeEngine, keeper: str) -> None:
    engine = make_engine("big 64", host_memory_gib=256 * MIB).start()
    assert engine.memory_held_by == keeper
    time.sleep(1.5)
    engine.probe()


def test_one_that_needs_more_at_its_start_is_ended_with_the_reason(
    make_engine: MakeEngine, keeper: str
) -> None:
    words = end_of(make_engine("big 400", host_memory_gib=128 * MIB))  # a watch may let it answer first
    assert "GiB of host memory" in words
    assert "0.125 GiB" in words
    assert "hard cap" in words


def end_of(engine: EngineProcess) -> str:
    """Why it was ended, at its start or under requests."""
    try:
        engine.start()
        for _ in range(50):
            engine.probe()
            time.sleep(0.1)
    except EngineStartError as error:
        return str(error)
    except EngineAnswerError:
        wait_until_dead(engine)
    return str(engine.death())


def test_one_that_needs_more_under_load_is_ended_with_the_reason(
    make_engine: MakeEngine, keeper: str
) -> None:
    engine = make_engine("grows 400", host_memory_gib=128 * MIB)
    assert "GiB of host memory" in end_of(engine)
    assert engine.start_s > 0


def test_children_count_too(make_engine: MakeEngine, keeper: str) -> None:
    """A family of four in memory that is enough for one."""
    one = make_engine("good", host_memory_gib=FOR_ONE).start()
    time.sleep(1.5)
    one.probe()
    assert "GiB of host memory" in end_of(make_engine("family", host_memory_gib=FOR_ONE))


def test_nothing_is_left_of_a_control_group(make_engine: MakeEngine, keeper: str) -> None:
    engine = make_engine("good", host_memory_gib=256 * MIB).start()
    folders = [folder for limit in engine._limits for folder in limit._group.folders.values()]  # type: ignore[union-attr]
    assert all(folder.is_dir() for folder in folders)
    assert bool(folders) == (keeper == "cgroup")
    engine.stop()
    assert not any(folder.exists() for folder in folders)


def test_without_a_cap_nothing_is_limited(make_engine: MakeEngine) -> None:
    assert make_engine("good").start().memory_held_by is None


def test_a_watch_names_what_was_held_and_ends_it() -> None:
    ended: list[str] = []
    limit = MemoryLimit(
        1.5,
        held_gib=lambda: 1.75,
        end=lambda: ended.append("ended"),
        group=ControlGroup({}),
        interval_s=0.01,
    )
    limit.start()
    deadline = time.monotonic() + 5
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    limit.stop()
    assert limit.excess() == "it held 1.750 GiB of host memory, and its cap leaves it 1.500 GiB"
    assert ended == ["ended"]


def test_the_kernels_kill_is_told_from_a_groups_own_count(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
    limit = MemoryLimit(1.5, held_gib=lambda: 0.0, end=lambda: None, group=ControlGroup({"memory": tmp_path}))
    assert limit.held_by == "cgroup"
    assert limit.excess() == "it took more than the 1.500 GiB of host memory that its cap leaves it"


def test_a_cap_limits_an_engine_on_a_cpu_and_no_other(make_engine: MakeEngine) -> None:
    spec = make_engine("good").spec
    cap = Cap(budget_gib=1.0, cap_gib=5.0, total_gib=16.0)
    assert spec.held_to(cap).host_memory_gib == 5.0
    assert spec.held_to(None) == spec
    on_gpu = spec.model_copy(update={"device": "cuda"})
    assert on_gpu.held_to(cap) == on_gpu
