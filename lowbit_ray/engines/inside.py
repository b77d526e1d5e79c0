"""The first process inside a sandbox: it starts the engine, hands out sockets, and buries the dead.

    python -I -S inside.py DOOR UID PROCESSES FILE_BYTES -- COMMAND...

Run by bubblewrap as process 1 of the sandbox, never imported by anything; only the standard library. It

- starts COMMAND under user id UID (-1: as it is), with limits on processes (-1: none) and on a file's size;
- answers on DOOR, a listening Unix socket that it inherited: whoever connects and writes a byte n gets n TCP
  sockets of the sandbox's own network, unconnected. The client outside connects one to the engine's port and
  talks to it with nothing in between, though the engine has no way out. The engine cannot reach DOOR;
- ends, and with it everything inside, when COMMAND has ended, unless that was clean and processes remain: then
  the engine has made a daemon of itself. After SIGTERM it waits for all of them.

Exit code: COMMAND's, or 128 + the signal that ended it.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import sys

PR_SET_DUMPABLE = 4
MOST = 64
"""Sockets handed out at once."""


def main(arguments: list[str]) -> int:
    door = socket.socket(fileno=int(arguments[0]))
    uid, processes, file_bytes = (int(word) for word in arguments[1:4])
    os.set_inheritable(door.fileno(), False)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # nobody inside looks into this process
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: stopping.append(number))
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    first = _start(arguments[arguments.index("--") + 1 :], uid, processes, file_bytes)
    code = None
    while True:
        ready, _, _ = select.select([door.fileno(), read], [], [], 5.0)
        if read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(read, 4096)
        if door.fileno() in ready:
            _hand_out(door)
        ended, anybody = _reap()
        code = ended.get(first, code)
        if not anybody:
            return 0 if code is None else code
        if code is not None and code != 0 and not stopping:
            return code


def _start(command: list[str], uid: int, processes: int, file_bytes: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if file_bytes >= 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        if uid >= 0:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        if processes >= 0:  # counted by user, so after the change of it
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
        os.execvp(command[0], command)  # noqa: S606 - a list, no shell
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201 - to the engine's log
    finally:
        os._exit(127)


def _hand_out(door: socket.socket) -> None:
    """Answers one client; whatever goes wrong is the client's to notice."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        asker = stack.enter_context(door.accept()[0])
        asker.settimeout(1.0)
        wanted = asker.recv(1)
        if wanted:
            made = [
                stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                for _ in range(min(max(wanted[0], 1), MOST))
            ]
            socket.send_fds(asker, [b"s"], [one.fileno() for one in made])


def _reap() -> tuple[dict[int, int], bool]:
    """Children that have ended, with their codes, and whether any is left."""
    codes: dict[int, int] = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return codes, True
            code = os.waitstatus_to_exitcode(status)
            codes[pid] = 128 - code if code < 0 else code
    except ChildProcessError:
        return codes, False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
