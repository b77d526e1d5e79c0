"""Engines that want out: each is started as a submission's is, and finds nothing, keeps nothing, leaves nothing."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from red import left_behind, start_alone

from lowbit_ray.engines.footprint import Footprint, look
from lowbit_ray.engines.ports import free_port
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.sandbox import sandbox_support
from lowbit_ray.errors import EngineStartError

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sandbox_support().user, reason=f"no sandbox: {sandbox_support().reason}"),
]


@dataclass(slots=True)
class World:
    """What lies outside of the sandbox, and an engine that tries to reach it."""

    folder: Path
    victim: subprocess.Popen[bytes]
    port: int
    free_port: int
    visitors: list[Any] = field(default_factory=list)
    footprint: Footprint | None = None
    tree: list[psutil.Process] = field(default_factory=list)

    def engine(self, name: str, **limits: Any) -> EngineProcess:
        targets = {
            "port": self.port,
            "free_port": self.free_port,
            "ledger": str(self.folder / "ledger"),
            "pid": self.victim.pid,
        }
        files = {"targets.json": json.dumps(targets)}
        return start_alone(self.folder, "outlaw.py", name, files=files, **limits)

    def told(self, name: str, **limits: Any) -> Any:
        """What it said that it achieved."""
        with self.engine(name, **limits) as engine:
            self.footprint, self.tree = look(engine.tree()), engine.tree()
            return json.loads(engine.log().splitlines()[0])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "prompts.json").write_text("hidden")
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        made = World(tmp_path, victim, server.getsockname()[1], free_port())
        done = threading.Event()

        def answer() -> None:
            while not done.is_set():
                try:
                    made.visitors.append(server.accept()[1])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=answer)
        thread.start()
        yield made
        done.set()
        thread.join()
    victim.kill()
    victim.wait()
    assert left_behind(tmp_path) == []
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in made.tree)


def test_whoever_forks_out_of_the_session_ends_with_the_engine(world: World) -> None:
    assert world.told("flees") == []
    assert len(world.tree) >= 4  # and the fixture sees that none of them lives on


def test_nobody_outside_is_reached_and_the_attempt_is_seen(world: World) -> None:
    assert world.told("connects") == []
    assert world.visitors == []
    assert world.footprint is not None
    assert world.footprint.peers == 0
    assert (world.footprint.unroutable or 0) >= 2


def test_a_door_left_open_leads_nowhere(world: World) -> None:
    with world.engine("listens") as engine:
        assert json.loads(engine.log().splitlines()[0]) == [world.free_port]
        world.tree = engine.tree()
        with (
            pytest.raises(OSError, match="refused"),
            socket.create_connection(("127.0.0.1", world.free_port)),
        ):
            pass
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", world.free_port)):
        pass


def test_neither_the_ledger_nor_other_processes_can_be_read(world: World) -> None:
    assert world.told("reads") == []


def test_no_secret_is_in_its_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "LOWBIT_SECRET",
        "LOWBIT_LEDGER",
        "AWS_SECRET_ACCESS_KEY",
        "RAY_ADDRESS",
        "HF_TOKEN",
        "GITHUB_TOKEN",
    ):
        monkeypatch.setenv(name, "canary")
    names = world.told("environment")
    assert "LOWBIT_MODEL_DIR" in names
    assert not {
        name for name in names if "SECRET" in name or "TOKEN" in name or name.startswith(("RAY", "AWS"))
    }
    assert "LOWBIT_LEDGER" not in names


def test_model_and_submission_cannot_be_changed(world: World) -> None:
    assert world.told("writes") == []
    names = {
        path.name for path in (*(world.folder / "model").iterdir(), *(world.folder / "engine").iterdir())
    }
    assert not {"planted", "renamed"} & names
    assert {"model.safetensors", "launch.sh"} <= names


def test_its_tmp_has_a_size(world: World) -> None:
    count, full = world.told("fills_tmp", tmp_gib=0.02)
    assert full
    assert count <= 21


def test_a_cache_beyond_its_quota_ends_it(world: World) -> None:
    with pytest.raises(EngineStartError, match=r"cache folder holds .* its limit is 0\.02 GiB"):
        world.engine("fills_cache", cache_gib=0.02).start()


def test_a_flood_of_output_ends_it(world: World) -> None:
    with pytest.raises(EngineStartError, match=r"SIGXFSZ|its limit|died"):
        world.engine("floods_log", cache_gib=0.02).start()
    logs = sum(path.stat().st_size for path in world.folder.glob("*.log"))
    assert logs <= 0.03 * 2**30


def test_a_fork_bomb_gets_so_many_processes_and_no_more(world: World) -> None:
    (children,) = world.told("fork_bomb", processes=48)
    assert children <= 48


def test_it_kills_nobody_outside(world: World) -> None:
    assert world.told("kills") == []
    assert world.victim.poll() is None


def test_more_memory_than_its_limit_ends_it(world: World) -> None:
    with pytest.raises(EngineStartError, match=r"0\.3 GiB"):
        world.engine("takes_memory", memory_gib=0.3).start()
