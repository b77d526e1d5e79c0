"""A Ray of this machine alone that has a job server: `ray start --head --block`, on ports of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from lowbit_ray.errors import InfraError
from lowbit_ray.session import ENVIRONMENT, LOCAL_MEMORY

__all__ = ["local_head"]

START_S = 180.0
END_S = 30.0
PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def local_head(cpus: int) -> Iterator[str]:
    """Its job server's address, for the length of the block; InfraError where it does not come up, with its log.

    cpus: what it offers; where the machine has fewer cores, they are shared. Ray listens at the machine's own address
    as well as at loopback, and whoever reaches it runs what they like: so it asks for a token, which is new each time
    and which this process and those of the block know by RAY_AUTH_TOKEN_PATH.
    """
    folder = Path(tempfile.mkdtemp(prefix="lowbit-"))  # a short path: Ray's sockets lie in it
    _ask_for_a_token(folder / "token")
    ports = {name: _free_port() for name in PORTS}
    dashboard = f"http://127.0.0.1:{ports['dashboard']}"
    with (folder / "head.log").open("wb") as log:
        process = subprocess.Popen(
            _command(cpus, folder, ports),
            env=os.environ | ENVIRONMENT | {"RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_parent,  # before any thread of this process starts
        )
    try:
        _wait(process, dashboard, folder / "head.log")
        yield dashboard
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


PORTS = ("", "dashboard", "dashboard-agent-listen", "ray-client-server", "runtime-env-agent")
"""Of Ray's; the one without a name is the head's own. All others are Ray's own choice."""


def _ask_for_a_token(path: Path) -> None:
    """Makes one for this user alone; Ray takes it from the environment of whoever starts or joins."""
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32))
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}


def _command(cpus: int, folder: Path, ports: dict[str, int]) -> list[str]:
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *(f"--{name}-port={port}" if name else f"--port={port}" for name, port in ports.items()),
        "--node-ip-address=127.0.0.1",
        "--dashboard-host=127.0.0.1",
        "--include-dashboard=true",
        f"--num-cpus={max(cpus, len(os.sched_getaffinity(0)))}",
        f"--memory={LOCAL_MEMORY}",
        "--object-store-memory=268435456",
        f"--temp-dir={folder}",
        "--disable-usage-stats",
    ]


def _wait(process: subprocess.Popen[bytes], dashboard: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{dashboard}/api/version", timeout=5):  # noqa: S310  # our own address
                return
        except urllib.error.HTTPError:
            return  # it is there, and asks for the token
        except OSError:
            time.sleep(0.5)
    raise InfraError(
        "the local Ray did not come up", where=dashboard, found=log.read_text(errors="replace")[-1000:]
    )


def _end_with_parent() -> None:
    """`ray start --block` ends its node on SIGTERM, also where we could not send it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
