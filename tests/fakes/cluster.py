"""A Ray cluster of processes on this machine: a head, nodes with GPUs that do not exist, all killable one by one.

Every node is `ray start --block` with its children, so what `kill` leaves is what a host that lost its power leaves.
The job server is the head's own; drivers that it starts see the arena's settings.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from fakes.ports import free_port

__all__ = ["FakeCluster", "FakeNode", "below", "kill_tree"]

ROOT = Path(__file__).parents[2]
SECONDS = 120
PR_SET_PDEATHSIG = 1
FAST = {
    # a node counts as dead after about three seconds
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
    # what outlives its head gives up after so long
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_JOB_STOP_WAIT_TIME_S": "180",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    # their processes cost a second of a core each, and nothing here asks for them
    "RAY_enable_metrics_collection": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}


@dataclass(slots=True)
class FakeNode:
    """A host: `ray start --block` and all that it has started."""

    process: subprocess.Popen[bytes]
    label: str
    """What tells it from the others, as they are all on this machine."""

    def tree(self) -> list[psutil.Process]:
        """Its processes, Ray's own and those of whatever runs there."""
        return below(self.process.pid)

    def kill(self) -> None:
        """As if the power went: all at once, nothing is told."""
        kill_tree(self.process)

    def stop(self) -> None:
        """In good order, as `ray stop` does it: SIGTERM, and a while to go."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.kill()


@dataclass(slots=True)
class FakeCluster:
    """A head and its nodes; files below `root`, which must be a short path (sockets lie there)."""

    root: Path
    environment: dict[str, str]
    port: int = field(default_factory=lambda: free_port())
    dashboard_port: int = field(default_factory=lambda: free_port())
    head: FakeNode | None = None
    nodes: list[FakeNode] = field(default_factory=list)
    retired: list[FakeNode] = field(default_factory=list)
    """Nodes that are drained: they end by themselves, or with the cluster."""
    started: int = 0

    @property
    def address(self) -> str:
        """Of the head, for RAY_ADDRESS."""
        return f"127.0.0.1:{self.port}"

    @property
    def dashboard(self) -> str:
        """Of the job server."""
        return f"http://127.0.0.1:{self.dashboard_port}"

    def start_head(self, *, cpus: int = 0) -> None:
        """A head that answers; GPUs are on other nodes. One that did not come up in Ray's own time is started anew."""
        arguments = ["--head", f"--port={self.port}", f"--dashboard-port={self.dashboard_port}"]
        arguments += ["--include-dashboard=true", f"--num-cpus={cpus}"]
        self.head = self._start(arguments, "head")
        deadline = time.monotonic() + SECONDS
        while not self._answers():
            log = self.root / f"node-{self.started}.log"
            assert time.monotonic() < deadline, f"the head did not come up: {log.read_text()[-2000:]}"
            if self.head.process.poll() is not None:
                self.head.kill()
                self.head = self._start(arguments, "head")
            time.sleep(0.2)

    def add_node(self, gpus: int, *, label: str | None = None) -> FakeNode:
        """A node with so many imagined GPUs; returns at once."""
        labels = {"lowbit-host": f"host-{self.started}"}
        name = labels["lowbit-host"]
        if label is not None:
            labels["ray.io/accelerator-type"] = label
        text = ",".join(f"{key}={value}" for key, value in labels.items())
        arguments = [f"--address={self.address}", f"--num-cpus={4 * gpus}", f"--num-gpus={gpus}"]
        node = self._start([*arguments, f"--labels={text}"], name)
        self.nodes.append(node)
        return node

    def mend(self, gpus: int) -> None:
        """Starts those anew that did not come up: Ray gives a node thirty seconds, which a busy machine exceeds."""
        for node in list(self.nodes):
            if node.process.poll() is not None:
                self.nodes.remove(node)
                self.add_node(gpus)

    def kill_head(self) -> None:
        """The head's host is gone, and with it the drivers."""
        assert self.head is not None
        self.head.kill()

    def close(self) -> None:
        """Ends everything."""
        for node in [*self.nodes, *self.retired, *([self.head] if self.head else [])]:
            node.kill()

    def run(self, *command: str, log: Path) -> subprocess.Popen[str]:
        """A command of ours beside the cluster, as organizers run it: `python -m …`, settings as on the head."""
        with log.open("w") as file:
            return subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=self.driver_environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def driver_environment(self) -> dict[str, str]:
        """What a process beside the cluster sees."""
        return self._environment() | {"RAY_ADDRESS": self.address, "RAY_API_SERVER_ADDRESS": self.dashboard}

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "LOWBIT_"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return kept | FAST | {"PATH": path, "PYTHONPATH": str(ROOT)} | self.environment

    def _start(self, arguments: list[str], label: str) -> FakeNode:
        self.started += 1
        ports = [f"--{name}-port={free_port()}" for name in ("dashboard-agent-listen", "runtime-env-agent")]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *arguments, *ports]
        command += [
            "--node-ip-address=127.0.0.1",
            "--object-store-memory=80000000",
            f"--temp-dir={self.root / 'ray'}",
            "--include-log-monitor=false",
            "--disable-usage-stats",
        ]
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / f"node-{self.started}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        return FakeNode(process, label)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.dashboard}/api/version", timeout=2):
                return True
        except OSError:
            return False


def below(pid: int) -> list[psutil.Process]:
    """A process and all its descendants that are alive."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to all of a tree, stopped first so that none of it starts or cleans up anything meanwhile."""
    tree = below(process.pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in tree:
            with contextlib.suppress(psutil.Error):
                one.send_signal(number)
        tree += [one for one in below(process.pid) if one not in tree]
    process.wait()


def _end_with_parent() -> None:
    """A test run that is killed takes its cluster along: `ray start --block` ends its node on SIGTERM."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
