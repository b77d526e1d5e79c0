"""The sandbox as an engine sees it: small real programs that look around, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lowbit_ray.engines import sandbox as sandbox_module
from lowbit_ray.engines.cgroup import ControlGroup
from lowbit_ray.engines.door import Door
from lowbit_ray.engines.isolation import Enclosure
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.quota import folder_bytes
from lowbit_ray.engines.sandbox import Support, sandbox_support
from lowbit_ray.engines.spec import EngineSpec
from lowbit_ray.errors import EngineStartError, PodError
from lowbit_ray.measure.endpoint import Endpoint, connect, post_json

HERE = Path(__file__).parent
Shut = Callable[..., EngineProcess]
needs_sandbox = pytest.mark.skipif(
    not sandbox_support().user, reason=f"no sandbox: {sandbox_support().reason}"
)


@pytest.fixture(params=["own", "mapped"])
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to a user id: as root, and by a user namespace, which whoever is not root has alone."""
    wanted: str = request.param
    if wanted == "own" and os.geteuid() != 0:
        pytest.skip("only root may change to any user")
    support = Support(
        user=wanted, reason="", release=sandbox_support().release, program=sandbox_support().program
    )
    monkeypatch.setattr(sandbox_module, "sandbox_support", lambda: support)
    return wanted


@pytest.fixture
def shut(tmp_path: Path) -> Iterator[Shut]:
    """An engine of the engine track in its sandbox, not started: a program of this folder, or launch.sh's lines."""
    made: list[EngineProcess] = []
    folder, model = tmp_path / "engine", tmp_path / "model"
    folder.mkdir()
    model.mkdir()
    (model / "config.json").write_text("{}")

    def make(*words: str, lines: tuple[str, ...] = (), **limits: object) -> EngineProcess:
        for name in ("servers.py", "prisoner.py"):
            shutil.copy(HERE / name, folder / name)
        (folder / "launch.sh").write_text("\n".join(lines))
        program = ("bash", str(folder / "launch.sh")) if lines else (sys.executable, str(folder / words[0]))
        fields: dict[str, object] = {
            "foreign": True,
            "required": True,
            "programs": (sys.executable,),
            "cache_dir": tmp_path / "cache" / "candidate",
            "memory_gib": 1.0,
            "processes": 64,
        }
        spec = EngineSpec(
            kind="launch",
            device="cpu",
            command=(*program, *words[1:]),
            environment={
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                "LOWBIT_MODEL_DIR": str(model),
            },
            folder=folder,
            model_dir=model,
            start_timeout_s=20,
            enclosure=Enclosure.model_validate(fields | limits),
        )
        engine = EngineProcess(spec, tmp_path / f"engine-{len(made)}.log", grace_s=1, sample_interval_s=0.1)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.stop()


def told(engine: EngineProcess) -> dict[str, object]:
    """What prisoner.py found."""
    with engine:
        found: dict[str, object] = json.loads(engine.log().splitlines()[0])
    return found


@needs_sandbox
def test_bubblewrap_is_found_wherever_the_engines_path_leads(shut: Shut) -> None:
    engine = shut("servers.py", "good")
    nowhere = engine.spec.environment | {"PATH": "/nowhere"}
    engine.spec = engine.spec.model_copy(update={"environment": nowhere})
    with engine:
        engine.probe()


@needs_sandbox
def test_it_is_reached_by_sockets_of_its_own_network_alone(shut: Shut, user: str) -> None:
    async def ask(endpoint: Endpoint) -> int:
        async with connect(endpoint, timeout_s=10) as session:
            body = {"model": "lowbit", "prompt": [1, 2, 3], "max_tokens": 1}
            answers = [await post_json(session, endpoint, "/v1/completions", body) for _ in range(40)]
        return sum(len(answer["choices"]) for answer in answers)

    with shut("servers.py", "good") as engine:
        assert asyncio.run(ask(Endpoint(engine.address, "lowbit", door=engine.door))) == 40
        with pytest.raises(OSError, match="Connect call failed"):
            asyncio.run(_outside(engine.port))


async def _outside(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


@needs_sandbox
def test_nothing_of_the_host_is_there_but_what_was_bound(shut: Shut, user: str, tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("hidden prompts")
    found = told(shut("prisoner.py", str(tmp_path / "ledger"), str(tmp_path / "cache" / "candidate")))
    assert found["reads"] == []  # of the ledger, homes, /etc/shadow and /root
    assert found["processes"] == found["own"]
    assert found["interfaces"] == ["lo"]
    assert found["connects"] == []
    assert found["beside"] == ["cache", "engine", "model"]
    assert found["capabilities"] == 0


@needs_sandbox
def test_it_can_write_to_its_cache_and_to_memory_only(shut: Shut, user: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "candidate"
    found = told(shut("prisoner.py", str(tmp_path / "ledger"), str(cache)))
    assert found["writes"] == sorted([str(cache), "/dev/shm", "/tmp"])
    assert found["mode_changes"] == []


@needs_sandbox
def test_its_user_is_nobody_elses(shut: Shut) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may change to any user")
    engine = shut("servers.py", "good")
    with engine:
        assert engine.isolation is not None
        assert engine.isolation.user == "own"
        inside = max(engine.tree(), key=lambda one: one.pid)
        assert inside.uids().real >= 40_000


@needs_sandbox
def test_a_cache_outlives_a_server_as_it_was_when_it_first_answered(
    shut: Shut, user: str, tmp_path: Path
) -> None:
    cache = tmp_path / "cache" / "candidate"
    lines = (
        f'ls -A "{cache}"; echo compiled > "{cache}/graph"; ln -sf /etc/shadow "{cache}/link"',
        f'(until [ -e "{cache}/asked" ]; do sleep 0.1; done; echo learned > "{cache}/prompts") &',
        f'exec python "{tmp_path}/engine/servers.py" good',
    )
    with shut(lines=lines) as first:
        (cache / "asked").touch()
        while not (cache / "prompts").exists():
            first.probe()
    with shut(lines=lines) as second:
        assert second.log().split() == ["graph", "link"]
    assert (cache / "link").is_symlink()


@needs_sandbox
@pytest.mark.parametrize("mode", ["family", "naked", "daemon", "stubborn"])
def test_whatever_it_forks_ends_with_it(shut: Shut, user: str, mode: str) -> None:
    engine = shut("servers.py", mode).start()
    tree = engine.tree()
    assert len(tree) >= 3
    group = engine._sandbox.group if engine._sandbox else None
    engine.stop()
    assert not any(one.is_running() and one.status() != "zombie" for one in tree)
    assert group is None or not any(path.parent.exists() for path in group.members)


@needs_sandbox
def test_more_memory_than_its_limit_is_said_to_be_the_reason(shut: Shut) -> None:
    with pytest.raises(EngineStartError, match=r"its limit of 0\.25 GiB|its limit is 0\.25 GiB"):
        shut("servers.py", "big", "600", memory_gib=0.25).start()


@needs_sandbox
def test_a_fork_bomb_stays_inside_its_number_of_processes(shut: Shut, user: str) -> None:
    lines = ("for i in $(seq 200); do sleep 60 & done 2>/dev/null", "wait")
    engine = shut(lines=lines)
    engine.spec = engine.spec.model_copy(update={"start_timeout_s": 3.0})
    with pytest.raises(EngineStartError):
        engine.start()
    assert len(engine.resident.seen) <= 70


@needs_sandbox
def test_a_cache_beyond_its_quota_ends_the_engine(shut: Shut, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "candidate"
    lines = (f'for i in $(seq 40); do head -c 1000000 /dev/zero > "{cache}/$i"; done', "sleep 60")
    with pytest.raises(EngineStartError, match=r"cache folder holds 0\.\d+ GiB, its limit is 0\.01 GiB"):
        shut(lines=lines, cache_gib=0.01).start()


@needs_sandbox
def test_files_in_memory_count_as_its_memory(shut: Shut, tmp_path: Path) -> None:
    lines = (
        "head -c 200000000 /dev/zero > /dev/shm/weights",
        f'exec python "{tmp_path}/engine/servers.py" good',
    )
    with shut(lines=lines) as engine:
        engine.resident.sample()
        assert engine.resident.peak_gib > 0.18


@needs_sandbox
def test_an_engine_that_ended_gives_no_more_sockets(shut: Shut) -> None:
    engine = shut("servers.py", "good").start()
    door = engine.door
    assert door is not None
    engine.stop()
    with pytest.raises(OSError, match="No such file"):
        Door(door).take()


def test_without_bubblewrap_it_runs_unofficially_and_says_so(
    shut: Shut, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = Support(user="", reason="bubblewrap is not installed", release="", program="")
    monkeypatch.setattr(sandbox_module, "sandbox_support", lambda: none)
    with shut("servers.py", "good", required=False) as engine:
        assert engine.isolation is not None
        assert engine.isolation.kind == "none"
        assert engine.isolation.reason == "bubblewrap is not installed"
        assert engine.door is None


def test_without_bubblewrap_nothing_is_scored_officially(shut: Shut, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Support(user="", reason="bubblewrap is not installed", release="", program="")
    monkeypatch.setattr(sandbox_module, "sandbox_support", lambda: none)
    with pytest.raises(PodError, match="bubblewrap is not installed"):
        shut("servers.py", "good").start()


def test_a_group_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("")  # version 2, but of a folder that knows no controller
    group = ControlGroup.make("lowbit-test", memory_bytes=2**30, processes=64, root=tmp_path / "absent")
    assert group.members == ()
    assert not (tmp_path / "absent").exists()


def test_groups_that_were_left_behind_are_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    for name in ("lowbit-old", "lowbit-new", "other"):
        (tmp_path / name).mkdir()
    for name in ("lowbit-old", "other"):
        os.utime(tmp_path / name, (0, 0))
    ControlGroup.make("lowbit-test", memory_bytes=2**30, processes=64, root=tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
        "lowbit-new",
        "lowbit-test",
        "other",
    }


def test_version_2_has_one_folder_with_both_limits(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    (tmp_path / "cgroup.procs").write_text("")
    group = ControlGroup.make("lowbit-test", memory_bytes=2**30, processes=64, root=tmp_path)
    (members,) = group.members
    assert (members.parent / "memory.max").read_text() == str(2**30)
    assert (members.parent / "pids.max").read_text() == "64"
    assert not group.ran_out_of_memory()
    (members.parent / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert group.ran_out_of_memory()


def test_links_in_a_cache_are_not_followed_when_it_is_measured(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "file").write_bytes(os.urandom(2**20))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "link").symlink_to(tmp_path / "big")
    used, entries = folder_bytes(tmp_path / "cache")
    assert used < 2**20
    assert entries == 1


def test_an_engine_of_the_checkpoint_track_is_in_no_sandbox(shut: Shut) -> None:
    engine = shut("servers.py", "good")
    engine.spec = engine.spec.model_copy(update={"enclosure": None})
    with engine:
        assert engine.isolation is None

        assert engine.door is None


STARTER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import EngineSpec
engine = EngineProcess(EngineSpec.model_validate_json({spec!r}), Path({log!r}), grace_s=0.5).start()
print(engine.door, *(path.parent for path in engine._sandbox.group.members), flush=True)
time.sleep(60)
"""


@needs_sandbox
def test_a_starter_that_is_killed_leaves_no_sandbox_behind(shut: Shut, tmp_path: Path) -> None:
    spec = shut("servers.py", "family").spec.model_dump_json()
    code = STARTER.format(here=str(HERE.parent), spec=spec, log=str(tmp_path / "killed.log"))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        left = [Path(word) for word in starter.stdout.readline().split()]
        assert left[0].exists()
        starter.kill()
    deadline = time.monotonic() + 20
    while any(path.exists() for path in left):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    assert not left[0].parent.exists()
