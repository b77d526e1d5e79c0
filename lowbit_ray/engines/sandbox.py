"""A sandbox for one engine, by bubblewrap: made from a spec's `Enclosure` on the machine that starts it.

What is inside: the system's programs and libraries, the interpreters that were named, the engine's folder and the
model, all read-only; the compile cache, writable; /tmp and /dev/shm of its own, limited in size; a /proc, a network
and (for a participant's engine) a user id of its own; of the devices only the pod's. What is not there cannot be
read: the ledger, other submissions, homes, this package's secrets. The argument list is the whole of the policy:
everything is absent unless it is bound.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lowbit_ray.engines.cgroup import PREFIX, ControlGroup
from lowbit_ray.engines.door import DoorKeeper
from lowbit_ray.engines.isolation import Enclosure, Isolation
from lowbit_ray.errors import PodError

__all__ = ["TMPFS", "Sandbox", "Support", "enclose", "sandbox_support"]

GIB = 2**30
TMPFS = ("/tmp", "/dev/shm")  # noqa: S108
"""Its file systems in memory."""
INSIDE = Path(__file__).with_name("inside.py")
INIT = "/run/lowbit/init.py"
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    *("alternatives", "ca-certificates", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("mime.types", "nsswitch.conf", "OpenCL", "passwd", "pki", "ssl", "vulkan"),
)
"""What programs of any kind read; nothing of it is particular to this machine."""
FIRST_UID, UIDS = 40_000, 20_000
"""Between the ids of people and of services, and known in every container; a submission's cache folder chooses."""
NAMESPACES = (
    *("--unshare-ipc", "--unshare-net", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "lowbit", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
CHANGES_USER = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
MAPS_USER = ("--unshare-user", "--uid", str(FIRST_UID), "--gid", str(FIRST_UID))


@dataclass(frozen=True, slots=True)
class Support:
    """What kind of sandbox this machine can make."""

    user: str
    """`own` where we are root and may change to any user, `mapped` by a user namespace, empty for none at all."""
    reason: str
    """Why there is none."""
    release: str
    program: str
    """Where bubblewrap is: the engine's own PATH need not lead there."""


@cache
def sandbox_support() -> Support:
    """Tries it: namespaces depend on the kernel's settings and on the container that we are in."""
    program = shutil.which("bwrap")
    if program is None:
        return Support(user="", reason="bubblewrap is not installed", release="", program="")
    release = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    said = ""
    for user, options in (("own", CHANGES_USER), ("mapped", MAPS_USER)):
        if user == "own" and os.geteuid() != 0:
            continue
        tried = subprocess.run(
            [program, *NAMESPACES, *options, *_system(), "--proc", "/proc", "--dev", "/dev", "true"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        if tried.returncode == 0:
            return Support(user, reason="", release=release.split()[-1], program=program)
        said = tried.stderr.strip().splitlines()[-1] if tried.stderr.strip() else f"code {tried.returncode}"
    return Support(
        user="", reason=f"bubblewrap cannot run here: {said}", release=release.strip(), program=program
    )


def enclose(wanted: Enclosure, model_dir: Path, folder: Path) -> tuple[Sandbox | None, Isolation]:
    """The sandbox that is asked for, or None and why there is none; PodError where one is required."""
    support = sandbox_support()
    if support.user:
        sandbox = Sandbox(wanted, model_dir=model_dir, folder=folder)
        return sandbox, sandbox.isolation
    if wanted.required:
        raise PodError(
            "an engine of the engine track is only scored in a sandbox, and this node can make none",
            where="bubblewrap",
            found=support.reason,
            expected="a node with bubblewrap whose container allows namespaces",
            remedy="Install it (docs/engine-track.md, For organizers), or submit to the dev split.",
        )
    return None, _no_sandbox(support.reason)


def _no_sandbox(reason: str) -> Isolation:
    """The isolation of an engine that runs as any other process."""
    return Isolation(
        kind="none",
        reason=reason,
        network="host",
        processes="host",
        user="host",
        memory_limit="watched",
        process_limit="none",
    )


class Sandbox:
    """One sandbox: the command and the environment in it, and what must be closed after it."""

    def __init__(self, enclosure: Enclosure, *, model_dir: Path, folder: Path) -> None:
        support = sandbox_support()
        self.enclosure = enclosure
        self._folder, self._model_dir = folder, model_dir
        self._program, self._changes_user = support.program, support.user == "own"
        self.uid = _uid(enclosure.cache_dir) if enclosure.foreign and self._changes_user else -1
        """The user id outside, -1 for ours."""
        self.door = DoorKeeper()
        self.group = ControlGroup.make(
            f"{PREFIX}{uuid.uuid4().hex[:12]}",
            memory_bytes=int(enclosure.memory_gib * GIB),
            processes=enclosure.processes + 2,  # bubblewrap and process 1
        )
        enclosure.cache_dir.mkdir(parents=True, exist_ok=True)
        if self.uid >= 0:
            os.chown(enclosure.cache_dir, self.uid, self.uid)
        pids = "pids" in self.group.folders
        self.isolation = Isolation(
            kind="bubblewrap",
            network="none",
            processes="own",
            user="own" if self.uid >= 0 else ("host" if self._changes_user else "mapped"),
            memory_limit="cgroup" if "memory" in self.group.folders else "watched",
            process_limit="cgroup" if pids else "rlimit",
            release=support.release,
        )

    def command(self, engine: list[str]) -> list[str]:
        """Bubblewrap around process 1 around the engine's own command."""
        wanted, python = self.enclosure, os.path.realpath(sys.executable)
        foreign = wanted.foreign
        return [
            *(self._program, *NAMESPACES, "--as-pid-1", *(CHANGES_USER if self._changes_user else MAPS_USER)),
            *self._mounts(),
            *("--chdir", str(self._folder), "--remount-ro", "/"),
            *(python, "-I", "-S", INIT, str(self.door.fileno()), str(self.uid)),
            str(wanted.processes if foreign else -1),
            str(int(wanted.cache_gib * GIB) if foreign else -1),
            *("--", *engine),
        ]

    def supervision(self) -> tuple[list[str], tuple[int, ...]]:
        """Options for the supervisor, and the descriptors to be inherited."""
        door = self.door.fileno()
        groups = (f"group={path}" for path in self.group.members)
        return ["sandboxed", f"pass={door}", f"door={self.door.path}", *groups], (door,)

    def give(self, log: int) -> None:
        """The engine may open its own output again, as `echo … > /dev/stderr` does."""
        if self.uid >= 0:
            os.fchown(log, self.uid, self.uid)

    def environment(self, engine: dict[str, str]) -> dict[str, str]:
        """The engine's own variables, where they would name what is not inside."""
        changed = {"TMPDIR": "/tmp"}  # noqa: S108 - a tmpfs of its own
        if self.enclosure.foreign:
            changed["HOME"] = "/tmp"  # noqa: S108
        if engine.get("CUDA_VISIBLE_DEVICES"):  # the others are not there, so that the count starts anew
            changed["CUDA_VISIBLE_DEVICES"] = ",".join(
                str(index) for index, _ in enumerate(engine["CUDA_VISIBLE_DEVICES"].split(","))
            )
        return engine | changed

    def close(self) -> None:
        """After its last process has ended."""
        self.door.close()
        self.group.close()

    def _mounts(self) -> Iterator[str]:
        wanted = self.enclosure
        yield from _system()
        yield from ("--dir", "/etc")
        for name in ETC:
            yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
        yield from ("--proc", "/proc", "--dev", "/dev")
        for device in wanted.devices:
            yield from ("--dev-bind", str(device), str(device))
        size = str(int(wanted.tmp_gib * GIB))
        yield from ("--perms", "1777", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108
        yield from ("--ro-bind-try", "/sys", "/sys")
        if Path("/sys/fs/cgroup").is_dir():
            yield from ("--size", "4096", "--tmpfs", "/sys/fs/cgroup", "--remount-ro", "/sys/fs/cgroup")
        yield from ("--perms", "1777", "--size", size, "--tmpfs", "/tmp")  # noqa: S108
        readable = (*_programs(wanted.programs), self._model_dir, self._folder)
        for parent in dict.fromkeys(
            above for path in (*readable, wanted.cache_dir) for above in _above(path)
        ):
            yield from ("--perms", "0755", "--dir", str(parent))  # bubblewrap would make them its own only
        for path in readable:
            yield from ("--ro-bind", str(path), str(path))
        yield from ("--bind", str(wanted.cache_dir), str(wanted.cache_dir))
        yield from ("--ro-bind", str(INSIDE), INIT)


def _system() -> Iterator[str]:
    """/usr, and the folders beside it that are links into it on most systems."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)


def _above(path: Path) -> list[Path]:
    """The folders above `path` that the sandbox does not have already, the highest first."""
    there = {Path("/"), Path("/usr"), Path("/tmp")}  # noqa: S108
    return [one for one in reversed(path.parents) if one not in there]


def _programs(named: tuple[Path, ...]) -> list[Path]:
    """Folders to bind for these programs and for the interpreter of process 1; none below another."""
    folders: set[Path] = set()
    for program in (*named, Path(sys.executable)):
        folders |= set(_environment_of(program))
    system = [Path("/usr"), *map(Path, SYSTEM)]
    return sorted(
        folder
        for folder in folders
        if not any(folder != other and folder.is_relative_to(other) for other in folders)
        and not any(folder.is_relative_to(other) for other in system)
    )


def _environment_of(program: Path) -> Iterator[Path]:
    """A virtual environment and the installation it was made from; else `bin`'s parent, or the script's folder."""
    for path in (program, Path(os.path.realpath(program))):
        inside_bin = path.parent.name == "bin" and path.parent.parent != Path("/")
        yield path.parent.parent if inside_bin else path.parent
        configuration = path.parent.parent / "pyvenv.cfg"
        with contextlib.suppress(OSError):
            for line in configuration.read_text().splitlines():
                key, _, value = line.partition("=")
                if key.strip() == "home":
                    yield Path(value.strip()).parent


def _uid(cache_dir: Path) -> int:
    """The same for all caches that lie side by side: those of one submission."""
    return FIRST_UID + zlib.crc32(str(cache_dir.parent).encode()) % UIDS
