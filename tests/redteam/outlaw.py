"""Engines that want out of their sandbox: each tries one thing, prints what came of it as JSON, and serves.

python outlaw.py NAME [flags of vLLM's]
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import engine as fake
from told import read_told

MODEL = Path(os.environ["LOWBIT_MODEL_DIR"])
HERE = Path(__file__).parent
CACHE = Path(os.environ["LOWBIT_CACHE_DIR"])
TARGETS: dict[str, Any] = json.loads((HERE / "targets.json").read_text())
"""What the test has put outside: `port`, `ledger`, `pid`."""
SLEEP = [sys.executable, "-c", "import time; time.sleep(3600)"]


def flees() -> list[str]:
    """Double forks out of its session, with an environment of nothing."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.execve(SLEEP[0], SLEEP, {})
        os._exit(0)
    os.wait()
    subprocess.Popen(SLEEP, start_new_session=True, env={})
    return []


def connects() -> list[str]:
    """To the host it runs on, to a name server, to a cloud's metadata, and by name."""
    found = []
    for address in (("127.0.0.1", TARGETS["port"]), ("1.1.1.1", 53), ("169.254.169.254", 80)):
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=0.3):
            found.append(address[0])
    with contextlib.suppress(OSError):
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"prompts", ("1.1.1.1", 53))
        found.append("udp")
    with contextlib.suppress(OSError):
        socket.getaddrinfo("pypi.org", 443)
        found.append("dns")
    return found


def listens() -> list[int]:
    """Leaves a door open on every interface."""
    holder = "import socket, time\ns = socket.create_server(('0.0.0.0', %d))\ntime.sleep(3600)"
    subprocess.Popen([sys.executable, "-c", holder % TARGETS["free_port"]], start_new_session=True)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", TARGETS["free_port"])):
            return [TARGETS["free_port"]]
        time.sleep(0.05)
    return []


def reads() -> list[str]:
    """The ledger, other people's files, other processes."""
    found = []
    for name in (
        TARGETS["ledger"],
        "/etc/shadow",
        str(Path("/root", ".ssh")),
        f"/proc/{TARGETS['pid']}/environ",
        "/proc/1/mem",
    ):
        path = Path(name)
        with contextlib.suppress(OSError):
            list(path.iterdir()) if path.is_dir() else path.read_bytes()
            found.append(name)
    seen = [path / "cmdline" for path in Path("/proc").iterdir() if path.name.isdigit()]
    return found + [str(path) for path in seen if b"time.sleep(600)" in path.read_bytes()]


def environment() -> list[str]:
    """Every variable it was given."""
    return sorted(os.environ)


def writes() -> list[str]:
    """Into the model's folder and its own, by whatever way."""
    found = []
    for folder in (MODEL, HERE, Path("/usr"), Path("/etc")):
        for act in (
            lambda folder: (folder / "planted").write_text("x"),
            lambda folder: next(folder.iterdir()).unlink(),
            lambda folder: folder.chmod(0o777),
            lambda folder: next(folder.iterdir()).rename(folder / "renamed"),
        ):
            with contextlib.suppress(OSError):
                act(folder)
                found.append(str(folder))
    return found


def fills_tmp() -> list[int]:
    """As many MiB as /tmp takes."""
    count, error = 0, 0
    try:
        with Path("/tmp/fill").open("wb") as file:
            for _ in range(1000):
                file.write(b"x" * 2**20)
                file.flush()
                count += 1
    except OSError as failure:
        error = failure.errno or 0
    with contextlib.suppress(OSError):
        Path("/tmp/fill").unlink()
    return [count, int(error == errno.ENOSPC)]


def fills_cache() -> list[int]:
    """More than its cache may hold, in many files, then waits for what happens."""
    for number in range(40):
        (CACHE / str(number)).write_bytes(b"x" * 2**20)
    time.sleep(60)
    return []


def floods_log() -> list[int]:
    """Prints without end."""
    for _ in range(2000):
        sys.stdout.write("x" * 2**16 + "\n")
    sys.stdout.flush()
    return []


def fork_bomb() -> list[int]:
    """Up to 300 children; how many it got."""
    children = []
    for _ in range(300):
        try:
            children.append(subprocess.Popen(["sleep", "3600"]))
        except OSError:
            break
    for child in children[8:]:  # room to serve
        child.kill()
        child.wait()
    return [len(children)]


def kills() -> list[int]:
    """Everything it can reach, and a process that it knows of."""
    if not os.fork():
        with contextlib.suppress(OSError):
            os.kill(TARGETS["pid"], signal.SIGKILL)
        os._exit(0)
    os.wait()
    return []


def takes_memory() -> list[int]:
    """More than it may have."""
    held = [os.urandom(2**20) for _ in range(700)]
    time.sleep(60)
    return [len(held)]


ACTS = {
    act.__name__: act
    for act in (
        flees,
        connects,
        listens,
        reads,
        environment,
        writes,
        fills_tmp,
        fills_cache,
        floods_log,
        fork_bomb,
        kills,
        takes_memory,
    )
}

if __name__ == "__main__":
    print(json.dumps(ACTS[sys.argv[1]]()), flush=True)
    asyncio.run(fake.serve(read_told(sys.argv[2:])))
