"""`lowbit serve`: three commands from nothing to a followed submission, with a Ray of its own and fake engines."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes.arena import SMALL, Arena
from fakes.ports import free_port

from lowbit_ray.journal import read_actions

pytestmark = pytest.mark.timeout(540)

MAIN = [sys.executable, "-c", "from lowbit_ray.cli import main; main()"]


def test_three_commands_lead_from_nothing_to_a_score(tmp_path: Path) -> None:
    pod = {"tensor_parallel": 0, "cpus": 1, "memory_gib": 0.25, "wait_s": 120}
    arena = Arena.build(tmp_path, **SMALL | {"pod": pod})
    port = free_port()
    environment: dict[str, Any] = (
        os.environ
        | arena.environment
        | {
            "LOWBIT_URL": f"http://127.0.0.1:{port}",
            "LOWBIT_TOKEN_FILE": str(tmp_path / "token"),
            "RAY_TMPDIR": f"/tmp/lowbit-local-{port}",
        }
    )
    (tmp_path / "token").write_text("of another service")
    serve = subprocess.Popen(
        [*MAIN, "serve", "--port", str(port), "--json"], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert serve.stdout is not None
        ready = json.loads(serve.stdout.readline())
        assert ready == {"url": environment["LOWBIT_URL"], "token_file": str(tmp_path / "token")}
        assert (tmp_path / "token").stat().st_mode & 0o077 == 0
        (aside,) = tmp_path.glob("token.*")
        assert aside.read_text() == "of another service"
        candidate = str(arena.candidate("candidate"))
        submit = [
            *MAIN,
            "submit",
            candidate,
            "--task",
            "fake",
            "--method",
            "rtn",
            "--split",
            "test",
            "--json",
        ]
        handed_in = subprocess.run(submit, env=environment, capture_output=True, text=True, timeout=120)
        assert handed_in.returncode == 0, handed_in.stderr
        name = json.loads(handed_in.stdout)["id"]
        watch = [*MAIN, "watch", name, "--json"]
        watched = subprocess.run(watch, env=environment, capture_output=True, text=True, timeout=480)
        last = json.loads(watched.stdout.splitlines()[-1])
        assert last["state"]["status"] == "done", watched.stdout + watched.stderr
        assert last["score"] > 0
        tree = psutil.Process(serve.pid).children(recursive=True)
        assert len(tree) > 3
        by = [action.by for action in read_actions(arena.ledger)]
        assert len(by) == 1
        assert by[0].startswith("lowbit serve: ")
        with pytest.raises(urllib.error.HTTPError, match="401"):  # Ray runs nothing for who has no token
            urllib.request.urlopen(f"{dashboard(tree)}/api/jobs/", timeout=30)
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(120) == 0
        left = psutil.wait_procs(tree, 30)[1]
        assert not left, [process.cmdline() for process in left if process.is_running()]
    finally:
        for process in psutil.Process(serve.pid).children(recursive=True) if serve.poll() is None else []:
            process.kill()
        serve.kill()
        serve.communicate()


def dashboard(tree: list[psutil.Process]) -> str:
    """The address of Ray's job server, from its processes."""
    arguments: list[str] = []
    for process in tree:
        with contextlib.suppress(psutil.Error):  # some end meanwhile
            arguments += process.cmdline()
    (port,) = {text.partition("=")[2] for text in arguments if text.startswith("--dashboard-port=")}
    return f"http://127.0.0.1:{port}"


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    environment = os.environ | {
        "LOWBIT_LEDGER": str(tmp_path / "l"),
        "LOWBIT_TOKEN_FILE": str(tmp_path / "t"),
    }
    command = [*MAIN, "serve", "--no-evaluate", "--json", "--port"]
    first = subprocess.Popen([*command, str(free_port())], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        port = json.loads(first.stdout.readline())["url"].rpartition(":")[2]
        second = subprocess.run(
            [*command, port], env=environment, capture_output=True, text=True, timeout=120
        )
        assert second.returncode == 2
        assert "cannot be listened at" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        first.terminate()
        first.communicate(timeout=60)
        assert first.returncode == 0
