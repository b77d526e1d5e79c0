"""Start, answer, failed starts and watching, on real processes."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from watching import wait_for

from lowbit_ray.engines import process as process_module
from lowbit_ray.engines.log import tail
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import HOST_VARIABLES
from lowbit_ray.errors import EngineAnswerError, EngineStartError, PodError

MakeEngine = Callable[..., EngineProcess]


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


def test_an_engine_stays_in_the_process_group_that_ray_kills(make_engine: MakeEngine) -> None:
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
    assert caught.value.where == engine.log_path.name  # records are public: no path of the host
    assert caught.value.found == "exit code 1"


def test_exit_code_0_is_no_success(make_engine: MakeEngine) -> None:
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
def test_faults_of_the_host_are_tried_again(make_engine: MakeEngine, cause: str) -> None:
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
    assert time.monotonic() - started < 40
    assert not engine.alive()
    assert engine.tree() == []


def test_health_alone_is_no_sign_of_life(make_engine: MakeEngine) -> None:
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
    assert tail(engine.log_path, 2) == "x\nlast"
