"""The end of an engine's whole tree, however it was built and whoever dies first."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from watching import gone, wait_for

from lowbit_ray.engines import survivors
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.survivors import end_survivors
from lowbit_ray.errors import DirtyDeviceError, EngineStartError, PodError

MakeEngine = Callable[..., EngineProcess]


def test_stopping_ends_children_setsid_grandchildren_and_those_that_ignore_sigterm(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine("family").start()
    tree = engine.tree()
    assert len(tree) == 4
    engine.stop()
    assert gone(tree)
    assert not engine.alive()


def test_a_daemon_is_found_and_ended(make_engine: MakeEngine) -> None:
    engine = make_engine("daemon", kind="launch").start()
    tree = engine.tree()
    assert [os.getsid(one.pid) != os.getsid(0) for one in tree] == [True]
    engine.stop()
    assert gone(tree)


def test_our_vllm_may_not_turn_into_a_daemon(make_engine: MakeEngine) -> None:
    """It may answer in the moment before its first process has ended and all of it with that; then it is dead."""
    engine = make_engine("daemon", start_timeout_s=120)

    def start_and_ask() -> None:
        engine.start()
        assert wait_for(lambda: not engine.alive())
        engine.probe()

    with pytest.raises(EngineStartError, match="the engine died"):
        start_and_ask()
    assert engine.tree() == []


def test_a_process_that_wiped_its_environment_and_fled_is_ended(make_engine: MakeEngine) -> None:
    engine = make_engine("naked").start()
    assert wait_for(lambda: len(engine.tree()) == 2)
    tree = engine.tree()
    engine.stop()
    assert gone(tree)


def test_the_first_process_dying_ends_the_rest(make_engine: MakeEngine) -> None:
    engine = make_engine("family").start()
    tree = engine.tree()
    first = min(tree, key=lambda one: one.create_time())
    first.kill()
    assert wait_for(lambda: not engine.alive())
    assert gone(tree)
    with pytest.raises(PodError):
        engine.probe(1)


def test_a_stubborn_engine_is_killed_after_the_grace(make_engine: MakeEngine) -> None:
    engine = make_engine("stubborn", grace_s=0.5).start()
    started = time.monotonic()
    engine.stop()
    assert 0.5 <= time.monotonic() - started < 30
    assert engine.tree() == []


def test_what_survives_even_sigkill_puts_its_node_into_quarantine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process does that hangs in a driver."""

    class Hanging(psutil.Process):
        def kill(self) -> None: ...

    monkeypatch.setattr(survivors, "LOOKS", 2)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as process:
        with pytest.raises(DirtyDeviceError, match=str(process.pid)):
            end_survivors({Hanging(process.pid)}, "NO=mark", spare=None, where=tmp_path)
        process.kill()


def test_stopping_twice_is_harmless(make_engine: MakeEngine) -> None:
    engine = make_engine("good").start()
    engine.stop()
    engine.stop()
    assert not engine.alive()


def test_an_error_in_the_body_stops_the_engine(make_engine: MakeEngine) -> None:
    engine = make_engine("good")
    trees = []

    def body() -> None:
        with engine:
            trees.append(engine.tree())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        body()
    assert gone(trees[0])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: a shell's background job ignores it, and so would Python under it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_start_leaves_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine("silent")
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        engine.start()
    assert engine.tree() == []
    assert not engine.alive()


def test_the_tree_is_ended_when_the_supervisor_is_killed(make_engine: MakeEngine) -> None:
    engine = make_engine("family").start()
    tree = engine.tree()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    engine.stop()
    assert gone(tree)


def test_one_that_fled_and_killed_the_supervisor_is_known_from_before(make_engine: MakeEngine) -> None:
    engine = make_engine("naked").start()
    assert wait_for(lambda: len(engine.resident.seen) == 2)
    tree = list(engine.resident.seen)
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    engine.stop()
    assert gone(tree)


STARTER = """
import sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from conftest import server_spec
from lowbit_ray.engines.process import EngineProcess
folder = Path({folder!r})
engine = EngineProcess(server_spec("family", folder), folder / "x.log", grace_s=0.5).start()
print(engine.pid, *[one.pid for one in engine.tree()], flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("whole_group", [False, True], ids=["alone", "with its process group"])
def test_a_starter_killed_outright_leaves_no_process(tmp_path: Path, whole_group: bool) -> None:
    root = Path(__file__).parents[2]
    program = STARTER.format(path=[str(root), str(root / "tests" / "engines")], folder=str(tmp_path))
    starter = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True, cwd=root
    )
    assert starter.stdout is not None
    members = [psutil.Process(int(pid)) for pid in starter.stdout.readline().split()]
    assert len(members) == 5
    if whole_group:
        os.killpg(starter.pid, signal.SIGKILL)
    else:
        starter.kill()
    starter.wait()
    starter.stdout.close()
    assert wait_for(lambda: gone(members))


def test_a_port_is_free_again_after_the_stop(make_engine: MakeEngine) -> None:
    engine = make_engine("good").start()
    engine.stop()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", engine.port))
