"""The way into a sandbox: TCP sockets of its own network, handed out over a Unix socket.

An engine in a sandbox has a loopback of its own and no way out. Process 1 of the sandbox (`inside.py`) makes
sockets there and passes them out; the client connects them to the engine's port as if it were inside. No byte of
a measurement goes through a relay, and the address stays `http://127.0.0.1:port`.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from pathlib import Path

__all__ = ["Door", "DoorKeeper"]

BATCH = 32
"""Sockets asked for at once: a client needs one for each request."""
WAIT_S = 5.0
PATH_LIMIT = 100
"""Longest path of a Unix socket, with some to spare."""


class DoorKeeper:
    """The listening end, made outside and inherited by process 1 of the sandbox."""

    def __init__(self) -> None:
        base = tempfile.gettempdir()
        self._folder = Path(
            tempfile.mkdtemp(prefix="lowbit-door-", dir=base if len(base) < PATH_LIMIT - 40 else "/tmp")  # noqa: S108
        )
        self.path = str(self._folder / "door")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.path)
        self._socket.listen(128)

    def fileno(self) -> int:
        return self._socket.fileno()

    def handed_over(self) -> None:
        """The sandbox has it now; the path stays, for clients."""
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Door:
    """A client's end: `take()` gives an unconnected TCP socket of the sandbox's network."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._spare: list[socket.socket] = []

    def take(self, batch: int = BATCH) -> socket.socket:
        """One socket; OSError where the sandbox has ended or does not answer."""
        if not self._spare:
            self._spare = _ask(self._path, batch)
        return self._spare.pop()

    def close(self) -> None:
        """Closes the sockets that nobody took."""
        while self._spare:
            self._spare.pop().close()


def _ask(path: str, count: int) -> list[socket.socket]:
    with contextlib.ExitStack() as stack, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(WAIT_S)
        asked.connect(path)
        asked.sendall(bytes([count]))
        _, numbers, _, _ = socket.recv_fds(asked, 1, count)
        given = [stack.enter_context(socket.socket(fileno=number)) for number in numbers]
        if not given or any(one.family != socket.AF_INET or one.type != socket.SOCK_STREAM for one in given):
            raise ConnectionRefusedError("the sandbox gives no sockets")
        stack.pop_all()
    return given
