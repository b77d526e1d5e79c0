"""One engine as a process: start it, wait until it answers, watch it, end the whole tree.

    with EngineProcess(spec, Path("serve.log")) as engine:
        ...  # http://127.0.0.1:{engine.port}

The engine hangs below `supervisor.py`, which ends every process of it when this object is stopped or this
process dies, however that happens. Output goes to a file: a pipe that nobody reads would stop the engine.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from lowbit_ray.engines.diagnosis import exit_meaning, is_fault_of_the_host, root_cause
from lowbit_ray.engines.isolation import Isolation
from lowbit_ray.engines.kept import keep_cache, restore_cache
from lowbit_ray.engines.liveness import ask_health, ask_one_token
from lowbit_ray.engines.log import tail
from lowbit_ray.engines.memory_limit import HeldBy, MemoryLimit
from lowbit_ray.engines.ports import free_port, listens
from lowbit_ray.engines.quota import Quota
from lowbit_ray.engines.resident import ResidentPeak
from lowbit_ray.engines.sandbox import TMPFS, Sandbox, enclose
from lowbit_ray.engines.spec import EngineSpec
from lowbit_ray.engines.survivors import descendants, end_survivors
from lowbit_ray.errors import EngineAnswerError, EngineStartError, LowbitError, PodError

__all__ = ["EngineProcess"]

SUPERVISOR = Path(__file__).with_name("supervisor.py")
TAG = "LOWBIT_ENGINE"
"""A variable that every process of one engine has, unless it wipes its environment."""
POLL_S = 0.1
SETTLE_S = 5.0
"""How long an engine may take to be seen dead after its last answer."""
LAST_RESORT_S = 45.0
"""How long the supervisor may take beyond the grace, more than its own limit for killing."""


class EngineProcess:
    """A server that was started from a spec; a context manager, usable once."""

    def __init__(
        self, spec: EngineSpec, log_path: Path, *, grace_s: float = 10.0, sample_interval_s: float = 1.0
    ) -> None:
        self.spec = spec
        self.log_path = log_path
        self.port = 0
        """0 until it is started."""
        self.start_s = 0.0
        """Seconds from the start to the first answer."""
        self._grace_s = grace_s
        self._tag = f"{TAG}={uuid.uuid4().hex}"
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._unasked_bytes: int | None = None
        """Of its log; None until it has answered."""
        self.isolation: Isolation | None = None
        """What it is shut in by, once started; None where the spec asks for nothing."""
        self._sandbox: Sandbox | None = None
        self._limits: list[Quota | MemoryLimit] = []
        self.resident = ResidentPeak(self.tree, sample_interval_s)
        """Memory of the whole tree, sampled by a thread while it runs."""

    # ---- life

    def start(self) -> Self:
        """Starts the engine and waits until it answers.

        Raises EngineStartError with the log's root cause if it dies or does not answer in time, PodError
        when that was the host's fault. Whatever is raised, nothing is left running.
        """
        try:
            self._spawn()
            self.resident.start()
            for limit in self._limits:
                limit.start()
            self._wait_until_it_answers()
            if self._sandbox is not None and self._sandbox.enclosure.foreign:
                keep_cache(self._sandbox.enclosure)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends the whole tree; PodError if a process survives. Does nothing when it has ended already."""
        supervisor = self._supervisor
        if supervisor is None:
            return self._release()
        self.resident.stop()
        for limit in self._limits:
            limit.stop()
        members = set(self.tree()) | self.resident.seen
        self._ask_to_end()
        if supervisor.stdin is not None and not supervisor.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                supervisor.stdin.close()
        try:
            supervisor.wait(self._grace_s + LAST_RESORT_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        try:
            end_survivors(members, self._tag, spare=self.pid, where=self.log_path)
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- watching

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def door(self) -> str | None:
        """The way into its sandbox, None where it is in none."""
        return self._sandbox.door.path if self._sandbox is not None else None

    @property
    def memory_held_by(self) -> HeldBy | None:
        """Who keeps the host memory of its processes within a limit; None without a limit."""
        return next((limit.held_by for limit in self._limits), None)

    @property
    def pid(self) -> int | None:
        """The supervisor's, the root of the tree."""
        return None if self._supervisor is None else self._supervisor.pid

    def alive(self) -> bool:
        """Whether its processes run; whether it answers is `probe`'s to say."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def probe(self, timeout_s: float = 60.0) -> None:
        """Asks for one token; EngineAnswerError if it does not come, EngineStartError if the engine died."""
        if not self.alive():
            raise self.death()
        ask_one_token(self.port, self.spec.served_name, timeout_s, self.door)

    def tree(self) -> list[psutil.Process]:
        """The engine's processes that are alive."""
        return descendants(self.pid)

    def log(self) -> str:
        """All it has printed."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _said_unasked(self) -> str:
        """What it printed before it was first asked anything hidden: later words could be those of a prompt."""
        return self.log_path.read_bytes()[: self._unasked_bytes].decode(errors="replace")

    def death(self) -> LowbitError:
        """The error that says why it is dead."""
        code = self._supervisor.poll() if self._supervisor else None
        for limit in self._limits:
            if excess := limit.excess():
                text = f"the engine was ended: {excess}"
                return EngineStartError(text, where=self.log_path.name, remedy=limit.remedy)
        cause = root_cause(self.log() if self.spec.kind == "vllm" else self._said_unasked())
        ours = self.spec.kind == "vllm" and is_fault_of_the_host(cause, code)
        return (PodError if ours else EngineStartError)(
            f"the engine died{f': {cause}' if cause else '' if self.log() else ' and printed nothing'}",
            where=self.log_path.name,
            found="still running" if code is None else exit_meaning(code),
            expected="a server that answers",
        )

    # ---- inside

    def _ask_to_end(self) -> None:
        supervisor = self._supervisor
        if supervisor is not None and supervisor.stdin is not None and not supervisor.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # it has ended by itself
                supervisor.stdin.write(b"q")
                supervisor.stdin.flush()

    def _spawn(self) -> None:
        if self._supervisor is not None:
            raise PodError("an engine process is started once", where=str(self.log_path))
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.spec.folder.mkdir(parents=True, exist_ok=True)
        self._enclose()
        self.port = free_port()
        name, value = self._tag.split("=")
        # What a child may see is the spec's to say; settings.py reads our own settings, not this.
        environment = self.spec.environment_for(self.port, os.environ) | {name: value}
        command = self.spec.command_for(self.port)
        options = [option for limit in self._limits for option in limit.options()]
        passed: tuple[int, ...] = ()
        keep_daemons = self.spec.kind == "launch" and self._sandbox is None
        if (sandbox := self._sandbox) is not None:
            command, environment = sandbox.command(command), sandbox.environment(environment)
            shut_in, passed = sandbox.supervision()
            options += shut_in
        self.log_path.write_bytes(b"")
        with self.log_path.open("ab") as log:  # whoever opens it again cannot write over what is there
            if sandbox is not None:
                sandbox.give(log.fileno())
            self._supervisor = subprocess.Popen(
                [
                    *(sys.executable, "-I", str(SUPERVISOR), str(self._grace_s), str(int(keep_daemons))),
                    *(*options, "--", *command),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.spec.folder,
                pass_fds=passed,
            )
        if sandbox is not None:
            sandbox.door.handed_over()

    def _enclose(self) -> None:
        """Makes the sandbox that the spec asks for; a participant's engine is watched as well."""
        if self.spec.host_memory_gib is not None:
            self._limits.append(
                MemoryLimit(self.spec.host_memory_gib, held_gib=self.resident.held, end=self._ask_to_end)
            )
        wanted = self.spec.enclosure
        if wanted is None:
            return
        self._sandbox, self.isolation = enclose(wanted, self.spec.model_dir, self.spec.folder)
        if self._sandbox is not None:
            self.resident.tmpfs = TMPFS
        if wanted.foreign:
            if self._sandbox is not None:
                restore_cache(wanted)
            group = self._sandbox.group if self._sandbox is not None else None
            self._limits.append(
                Quota(
                    wanted, log=self.log_path, held_gib=self.resident.held, group=group, end=self._ask_to_end
                )
            )

    def _release(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
        for limit in self._limits:
            limit.close()

    def _wait_until_it_answers(self) -> None:
        started = time.monotonic()
        deadline = started + self.spec.start_timeout_s
        last: object = "nothing listens"
        while (left := deadline - time.monotonic()) > 0:
            if not self.alive():
                raise self.death()
            try:
                health = ask_health(self.port, min(5.0, left), self.door)
                if health.status == 200 or self.spec.kind == "launch":  # it need not have this route
                    ask_one_token(self.port, self.spec.served_name, left, self.door)
                    self._check_owner()
                    self.start_s = time.monotonic() - started
                    self._unasked_bytes = self.log_path.stat().st_size
                    return
                last = "/health does not answer 200"
            except (OSError, http.client.HTTPException) as error:
                last = f"{type(error).__name__}: {error}"
            except EngineAnswerError as error:
                last = error.found
            time.sleep(POLL_S)
        raise EngineStartError(
            f"the engine did not answer within {self.spec.start_timeout_s:g} s",
            where=self.log_path.name,
            found=f"{last}; last line: {root_cause(tail(self.log_path, 20))}",
            expected="one token",
        )

    def _check_owner(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while self._sandbox is None and not listens(
            self.port, self.tree()
        ):  # else nobody else can listen there
            if not self.alive():  # it has answered with its last breath
                raise self.death()
            if time.monotonic() > deadline:
                raise PodError("another process answers on the engine's port", where=self.address)
            time.sleep(POLL_S)
