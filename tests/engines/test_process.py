"""Start, answer, death and the end of the whole tree, on real processes."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lowbit_ray.engines import process as process_module
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import HOST_VARIABLES
from lowbit_ray.errors import EngineAnswerError, EngineStartError, PodError

MakeEngine = Callable[..., EngineProcess]


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def gone(processes: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


# ---- start


def test_a_started_engine_has_answered_a_token(make_engine: MakeEngine) -> None:
    with make_engine("good") as engine:
        engine.probe(5)
        assert engine.alive()
        assert 0 < engine.start_s < 15


def test_the_port_lies_beyond_rays(make_engine: MakeEngine) -> None:
    with make_engine("good") as engine:
        assert 20000 <= engine.port <= 29999
        assert engine.address == f"http://127.0.0.1:{engine.port}"


def test_an_engine_that_is_slow_to_come_up_is_waited_for(make_engine: MakeEngine) -> None:
    with make_engine("slow 1") as engine:
        assert engine.start_s > 1


def test_an_engine_sees_no_secret_of_the_host(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("HF_TOKEN", "canary")
    monkeypatch.setenv("RAY_ADDRESS", "canary")
    with make_engine("environ") as engine:
        seen = json.loads(engine.log().splitlines()[0])
    assert "canary" not in json.dumps(seen)
    assert set(seen["environ"]) <= {*HOST_VARIABLES, "LC_CTYPE", "LOWBIT_PORT", "LOWBIT_ENGINE"}


def test_an_engine_reads_nothing_from_standard_input(make_engine: MakeEngine) -> None:
    with make_engine("environ") as engine:
        assert json.loads(engine.log().splitlines()[0])["stdin"] == "/dev/null"


def test_lesson_64_an_engine_stays_in_the_process_group_that_ray_kills(make_engine: MakeEngine) -> None:
    with make_engine("good") as engine:
        assert [os.getpgid(one.pid) for one in engine.tree()] == [os.getpgrp()]
        assert engine.pid is not None
        assert os.getpgid(engine.pid) == engine.pid  # the supervisor outlives that kill


def test_the_spec_of_an_engine_pickles(make_engine: MakeEngine) -> None:
    spec = make_engine("good").spec
    assert pickle.loads(pickle.dumps(spec)) == spec


# ---- failed starts


def test_a_dead_engine_is_reported_with_its_root_cause_and_log(make_engine: MakeEngine) -> None:
    engine = make_engine("dies")
    with pytest.raises(EngineStartError, match="ValueError: no such dtype: int3") as caught:
        engine.start()
    assert caught.value.where == str(engine.log_path)
    assert caught.value.found == "exit code 1"


def test_lesson_66_exit_code_0_is_no_success(make_engine: MakeEngine) -> None:
    with pytest.raises(EngineStartError, match="printed nothing") as caught:
        make_engine("quits").start()
    assert caught.value.found == "exit code 0"


def test_a_launch_script_that_exits_with_0_and_leaves_nobody_is_dead(make_engine: MakeEngine) -> None:
    with pytest.raises(EngineStartError):
        make_engine("quits", kind="launch").start()


def test_a_crash_names_its_signal(make_engine: MakeEngine) -> None:
    with pytest.raises(EngineStartError) as caught:
        make_engine("crashes").start()
    assert caught.value.found == "signal SIGSEGV"


def test_our_vllm_killed_from_outside_is_our_fault(make_engine: MakeEngine) -> None:
    with pytest.raises(PodError) as caught:
        make_engine("killed").start()
    assert caught.value.found == "signal SIGKILL"


PROFILING = (
    "AssertionError: Error in memory profiling. Initial free memory 130.1 GiB, current free memory 131.2 GiB. "
    "This happens when other processes sharing the same container release GPU memory"
)
FREE = "ValueError: Free memory on device cuda:0 (30/139.8 GiB) on startup is less than desired GPU memory utilization"


@pytest.mark.parametrize(
    "cause", [PROFILING, FREE, "OSError: [Errno 98] Address already in use"], ids=["profile", "free", "port"]
)
def test_lessons_41_and_42_faults_of_the_host_are_tried_again(make_engine: MakeEngine, cause: str) -> None:
    with pytest.raises(PodError) as caught:
        make_engine("dies", environment={"DIES_WITH": cause}).start()
    assert caught.value.retryable


def test_a_launch_script_cannot_claim_a_fault_of_the_host(make_engine: MakeEngine) -> None:
    with pytest.raises(EngineStartError):
        make_engine("dies", kind="launch", environment={"DIES_WITH": PROFILING}).start()


def test_a_launch_script_killed_from_outside_is_its_own_fault(make_engine: MakeEngine) -> None:
    with pytest.raises(EngineStartError):
        make_engine("killed", kind="launch").start()


def test_a_command_that_does_not_exist_is_named(make_engine: MakeEngine) -> None:
    with pytest.raises(EngineStartError, match="no-such-program: No such file or directory"):
        make_engine("good", command=("no-such-program",)).start()


@pytest.mark.parametrize("mode", ["silent", "drip", "healthy"])
def test_an_engine_that_never_answers_a_token_is_stopped_at_its_time_limit(
    make_engine: MakeEngine, mode: str
) -> None:
    engine = make_engine(mode, start_timeout_s=2.0)
    started = time.monotonic()
    with pytest.raises(EngineStartError, match="did not answer within 2 s"):
        engine.start()
    assert time.monotonic() - started < 8
    assert not engine.alive()
    assert engine.tree() == []


def test_lesson_68_health_alone_is_no_sign_of_life(make_engine: MakeEngine) -> None:
    with make_engine("mortal") as engine, pytest.raises(EngineAnswerError, match="the worker has died"):
        engine.probe(5)


def test_another_server_on_the_port_is_not_taken_for_the_engine(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_engine("good") as other:
        monkeypatch.setattr(process_module, "free_port", lambda: other.port)
        with pytest.raises(PodError, match="another process answers"):
            make_engine("slow 60", kind="launch").start()


def test_an_engine_process_is_started_once(make_engine: MakeEngine) -> None:
    with make_engine("good") as engine, pytest.raises(PodError, match="started once"):
        engine._spawn()


# ---- stop


def test_stopping_ends_children_setsid_grandchildren_and_those_that_ignore_sigterm(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine("family").start()
    tree = engine.tree()
    assert len(tree) == 4
    engine.stop()
    assert gone(tree)
    assert not engine.alive()


def test_lesson_64_a_daemon_is_found_and_ended(make_engine: MakeEngine) -> None:
    engine = make_engine("daemon", kind="launch").start()
    tree = engine.tree()
    assert [os.getsid(one.pid) != os.getsid(0) for one in tree] == [True]
    engine.stop()
    assert gone(tree)


def test_our_vllm_may_not_turn_into_a_daemon(make_engine: MakeEngine) -> None:
    with pytest.raises(EngineStartError):
        make_engine("daemon").start()


def test_a_process_that_wiped_its_environment_and_fled_is_ended(make_engine: MakeEngine) -> None:
    engine = make_engine("naked").start()
    assert wait_for(lambda: len(engine.tree()) == 2)
    tree = engine.tree()
    engine.stop()
    assert gone(tree)


def test_lesson_66_the_first_process_dying_ends_the_rest(make_engine: MakeEngine) -> None:
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
    assert 0.5 <= time.monotonic() - started < 4
    assert engine.tree() == []


def test_stopping_twice_is_harmless(make_engine: MakeEngine) -> None:
    engine = make_engine("good").start()
    engine.stop()
    engine.stop()


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
def test_lessons_65_and_67_a_starter_killed_outright_leaves_no_process(
    tmp_path: Path, whole_group: bool
) -> None:
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


# ---- watching


def test_the_peak_of_resident_memory_is_that_of_the_whole_tree(make_engine: MakeEngine) -> None:
    with make_engine("big 200") as engine:
        engine.resident.sample()
        assert 200 / 1024 < engine.resident.peak_gib < 0.4
        engine.resident.reset()
        assert wait_for(lambda: engine.resident.peak_gib > 200 / 1024)


def test_memory_that_grows_later_raises_the_peak(make_engine: MakeEngine) -> None:
    with make_engine("grows 200") as engine:
        engine.resident.sample()
        before = engine.resident.peak_gib
        engine.probe(10)
        assert wait_for(lambda: engine.resident.peak_gib > before + 195 / 1024)


def test_the_tail_of_a_long_log_is_read_from_its_end(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine("good")
    engine.log_path.write_text("first\n" + "x\n" * 2_000_000 + "last\n")
    assert engine.log_tail(2) == "x\nlast"
