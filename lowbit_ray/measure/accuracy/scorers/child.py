"""One child process with bounded time and output, which never outlives the call."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ChildRun", "run_child"]

_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ChildRun:
    """What a child left."""

    output: bytes
    """Its standard output, `max_bytes` at most."""
    returncode: int
    """As in subprocess: negative for a signal."""
    timed_out: bool
    """Killed at the wall-clock limit."""
    overflowed: bool
    """Killed as it wrote more than `max_bytes`."""


def run_child(
    command: Sequence[str],
    payload: bytes,
    *,
    wall_s: float,
    max_bytes: int,
    environment: dict[str, str],
) -> ChildRun:
    """Runs `command` with `payload` on its standard input, in a process group of its own.

    The group is killed when the child ends, when `wall_s` seconds have passed and when it has written too
    much. Nothing is inherited but the three standard streams; standard error goes nowhere, as it may quote
    hidden text.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd="/",
        process_group=0,
    )
    output = bytearray()
    deadline = time.monotonic() + wall_s
    try:
        finished = _exchange(child, payload, output, deadline, max_bytes)
        if finished:
            child.wait(timeout=max(deadline - time.monotonic(), 0.01))
        timed_out = not finished and len(output) <= max_bytes
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
    return ChildRun(bytes(output[:max_bytes]), child.returncode, timed_out, len(output) > max_bytes)


def _exchange(
    child: subprocess.Popen[bytes], payload: bytes, output: bytearray, deadline: float, max_bytes: int
) -> bool:
    """Writes and reads until the child closes its output (True), or a limit is reached (False)."""
    assert child.stdin is not None
    assert child.stdout is not None
    os.set_blocking(child.stdin.fileno(), False)
    unsent = memoryview(payload)
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stdin, selectors.EVENT_WRITE)
        while len(output) <= max_bytes:
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready:
                return False
            for key, _ in ready:
                if key.fileobj is child.stdout:
                    piece = os.read(child.stdout.fileno(), _READ_BYTES)
                    if not piece:
                        return True
                    output += piece
                    continue
                unsent = unsent[_send(child.stdin.fileno(), unsent) :]
                if not unsent:
                    selector.unregister(child.stdin)
                    child.stdin.close()
    return False


def _send(descriptor: int, unsent: memoryview) -> int:
    """Bytes taken by the pipe; all of them when the child no longer listens."""
    try:
        return os.write(descriptor, unsent[:_READ_BYTES])
    except BrokenPipeError:
        return len(unsent)
