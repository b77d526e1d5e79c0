"""The process between us and an engine: it outlives us for as long as it takes to end the whole tree.

    python -I supervisor.py GRACE_S KEEP_DAEMONS [OPTIONS] -- COMMAND...

Started by `EngineProcess`, never imported by anything; only the standard library, as it must be up in
milliseconds and must not depend on the environment of what it starts. It

- becomes a child subreaper, so that a process which calls setsid, double-forks or loses its parent stays a
  descendant of this one and can be found;
- leaves the engine in the starter's process group, which Ray kills when an actor ends and which Ctrl-C
  reaches; itself it leaves that group, so as to survive both and end what escaped them;
- ends the tree (SIGTERM, GRACE_S seconds, SIGKILL until nothing is left) as soon as something or the end
  comes in on its standard input: the starter asks for it, or has died in whatever way;
- is not outlived by the engine's first process, should it be killed itself;
- ends the tree too when the engine's first process exits, unless that exit was clean, KEEP_DAEMONS is 1
  and descendants remain: then the engine has made a daemon of itself and lives on.

Options, for an engine in a sandbox:
    group=PATH  the engine becomes a member of a control group, by its file cgroup.procs
    pass=FD     the engine inherits this descriptor, and this process does not keep it
    door=PATH   a Unix socket in a folder of its own, to be removed where the starter has died
    sandboxed   the first process ignores SIGTERM: all in the sandbox get it, and the sandbox must outlast them

Exit code: the first process's, or 128 + the signal that ended it.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TICK_S = 0.5
KILL_LIMIT_S = 30.0
"""A process that survives SIGKILL for so long hangs in the kernel; the starter reports it."""
TO_DEFAULT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that this process or Python ignores, and that the engine must not inherit so."""


def main(arguments: list[str]) -> int:
    grace_s, keep_daemons = float(arguments[0]), arguments[1] == "1"
    split = arguments.index("--")
    options, command = arguments[2:split], arguments[split + 1 :]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        print("supervisor: cannot become a child subreaper", file=sys.stderr)  # noqa: T201 - to the engine's log
        return 125
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    starter = os.getppid()
    deaths = _wake_on_death()
    first = _start(command, options)
    for option in options:
        if option.startswith("pass="):
            os.close(int(option.removeprefix("pass=")))
    os.setpgid(0, 0)
    codes: dict[int, int] = {}
    while not _starter_is_gone(starter, deaths):
        _reap(codes)
        # Looking for descendants reads all of /proc, so it is done only where the answer matters.
        if first in codes and not (keep_daemons and codes[first] == 0 and descendants()):
            break
    end_tree(grace_s, codes)
    if os.getppid() != starter:  # nobody else will
        _tidy(options)
    return codes.get(first, 128 + signal.SIGKILL)


def _start(command: list[str], options: list[str]) -> int:
    """Forks and execs; the child keeps the process group and has nothing on its standard input."""
    pid = os.fork()
    if pid:
        return pid
    try:
        # Ray kills a worker's own children, this process among them: then nobody is left to end the engine.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in TO_DEFAULT:
            if number != signal.SIGTERM or "sandboxed" not in options:
                signal.signal(number, signal.SIG_DFL)
        for option in options:
            if option.startswith("group="):
                with open(option.removeprefix("group="), "w") as members:  # noqa: PTH123
                    members.write("0")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)  # noqa: S606 - a list, no shell
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
    finally:
        os._exit(127)


def _tidy(options: list[str]) -> None:
    """Removes the groups and the door that a dead starter made; a group's last process may still be ending."""
    folders = [option.partition("=")[2].rpartition("/")[0] for option in options if "=/" in option]
    for option in options:
        if option.startswith("door="):
            with contextlib.suppress(OSError):
                os.unlink(option.removeprefix("door="))  # noqa: PTH108
    for folder in folders:
        for _ in range(50):
            try:
                os.rmdir(folder)  # noqa: PTH106
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.02)


def _wake_on_death() -> int:
    """A descriptor that becomes readable when a child ends."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _starter_is_gone(starter: int, deaths: int) -> bool:
    """Waits for standard input, for a child's end, or one tick.

    The parent's id is the second witness of the starter's death: a process that the starter forked may hold
    the other end of standard input open.
    """
    readable, _, _ = select.select([0, deaths], [], [], TICK_S)
    if deaths in readable:
        os.read(deaths, 4096)
    return 0 in readable or os.getppid() != starter


def _reap(codes: dict[int, int]) -> None:
    """Collects all children that have ended into `codes`, by pid."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            codes[pid] = 128 - code if code < 0 else code


def descendants() -> list[int]:
    """Pids below this process, zombies left out, nearest first."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would be a slower import
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
        if fields[0] in (b"Z", b"X"):
            zombies.add(int(name))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(0), [])
        queue += below
        found += [pid for pid in below if pid not in zombies]
    return found


def end_tree(grace_s: float, codes: dict[int, int]) -> None:
    """SIGTERM to all, then SIGKILL until two looks in a row find nobody."""
    _signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while descendants() and time.monotonic() < deadline:
        time.sleep(0.02)
        _reap(codes)
    deadline = time.monotonic() + KILL_LIMIT_S
    quiet = 0
    while quiet < 2 and time.monotonic() < deadline:
        quiet = 0 if _signal(signal.SIGKILL) else quiet + 1
        _reap(codes)
        time.sleep(0.01)
    _reap(codes)


def _signal(number: int) -> int:
    """Signals every descendant; how many there were."""
    below = descendants()
    for pid in below:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(below)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
