"""One local cluster with a job server; each job is submitted to it as organizers do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.arena import SMALL, Arena
from fakes.cluster import FakeCluster

SECONDS = 280
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended."""

    code: int
    """Of `ray job submit`: 0 where the driver's was."""
    log: str
    """All that the driver printed, and what the command itself did."""

    @property
    def driver_code(self) -> int:
        """The driver's own exit code."""
        if self.code == 0:
            return 0
        return int(self.log.rpartition("exit code ")[2].split()[0].rstrip(",.)'\""))

    def json(self) -> object:
        """The JSON object or list that the driver printed last."""
        lines = self.log.splitlines()
        starts = [number for number, line in enumerate(lines) if line in ("{", "[")]
        value, _ = json.JSONDecoder().raw_decode("\n".join(lines[starts[-1] :]))
        return value


@dataclass(frozen=True, slots=True)
class JobServer:
    """The cluster and its arena."""

    arena: Arena
    cluster: FakeCluster

    def submit(self, module: str, *arguments: str) -> Ended:
        """`ray job submit -- python -m MODULE …`, until the job has ended."""
        return self.run("python", "-m", module, *arguments)

    def here(self, module: str, *arguments: str) -> Ended:
        """The same entry point as a process of its own, without Ray: much quicker, for what needs no cluster."""
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | self.arena.environment | {"NO_COLOR": "1"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        return Ended(done.returncode, f"{done.stdout}\nexit code {done.returncode}\n")

    def run(self, *command: str) -> Ended:
        """`ray job submit -- COMMAND`, until the job has ended."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "job", "submit"),
                *("--address", self.cluster.dashboard, "--", *command),
            ],
            env=os.environ | {"RAY_AUTH_MODE": "disabled", "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        return Ended(done.returncode, done.stdout)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    arena = Arena.build(tmp_path_factory.mktemp("jobs") / "arena", **SMALL)
    environment = {**arena.environment, "RAY_enable_metrics_collection": "1", "NO_COLOR": "1"}
    cluster = FakeCluster(Path(tempfile.mkdtemp(prefix="lb-")), environment)
    try:
        cluster.start_head()
        cluster.add_node(2)
        yield JobServer(arena, cluster)
    finally:
        cluster.close()
        shutil.rmtree(cluster.root, ignore_errors=True)
