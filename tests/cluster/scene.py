"""An arena on a cluster of processes: submissions, dispatchers, drivers, engines, and the moment to strike one."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from fakes.arena import SMALL, Arena
from fakes.cluster import FakeCluster, FakeNode

from lowbit_ray.evaluate import read_record
from lowbit_ray.lease import Lease, attempts, read_lease
from lowbit_ray.records import Record
from lowbit_ray.stages.context import step_times
from lowbit_ray.standing import Cancellation
from lowbit_ray.submission import Submission, now

__all__ = ["GPUS", "Scene", "end", "wait_until"]

SECONDS = 240
GPUS = 4
"""Imagined ones a node."""


@dataclass(slots=True)
class Scene:
    """All of it; every process it started is gone after `close`."""

    arena: Arena
    cluster: FakeCluster
    dispatchers: list[subprocess.Popen[str]] = field(default_factory=list)
    undisturbed: dict[str, Any] = field(default_factory=dict)
    """What was measured of the candidate while nothing happened."""

    @staticmethod
    def build(root: Path, **task: Any) -> Scene:
        """An arena of the small task, and a cluster that is not started yet. Its sockets need a short path."""
        arena = Arena.build(root / "arena", **{**SMALL, **task})
        return Scene(arena, FakeCluster(Path(tempfile.mkdtemp(prefix="lb-")), arena.environment))

    def warm_up(self) -> None:
        """One evaluation: the anchor's reusable part and the token pool are there afterwards."""
        submission = self.submit("warm-up")
        with self.dispatcher():
            [record] = self.wait_for([submission])
        assert record.result is not None, record.error
        self.undisturbed = self.measured(record)

    @staticmethod
    def measured(record: Record) -> dict[str, Any]:
        """All that a machine's speed has no part in."""
        assert record.result is not None, record.error
        kept = (
            "memory",
            "mean_drop",
            "length_shift",
            "drift",
            "memories",
            "admitted",
            "precision",
            "noise_floor",
        )
        return record.result.model_dump(include=set(kept)) | {"kl": record.result.kl.kl}

    def submit(self, name: str, **changes: Any) -> Submission:
        """Another submission of the one candidate."""
        folder = self.arena.root / "candidate"
        if not folder.is_dir():
            self.arena.candidate("candidate")
        return self.arena.submit(folder, method=name, **changes)

    @contextlib.contextmanager
    def dispatcher(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """`python -m jobs.dispatch` until the block ends."""
        process = self.start_dispatcher(*options)
        try:
            yield process
        finally:
            end(process)

    def start_dispatcher(self, *options: str) -> subprocess.Popen[str]:
        """A dispatcher that hardly waits."""
        quick = ("--every", "0.5", "--retry-s", "0.5", "--faults", "20")
        log = self.cluster.root / f"dispatcher-{len(self.dispatchers)}.log"
        process = self.cluster.run("-m", "jobs.dispatch", *quick, *options, log=log)
        self.dispatchers.append(process)
        return process

    def wait_for(self, submissions: Sequence[Submission], seconds: float = SECONDS) -> list[Record]:
        """The records of all of them."""

        def done() -> bool:
            ended = [
                process for process in self.dispatchers if process.poll() not in (None, 0, -signal.SIGKILL)
            ]
            assert not ended, self.story()
            self.cluster.mend(GPUS)
            return all(self.record(one) for one in submissions)

        wait_until(done, self.story, seconds)
        return [record for one in submissions if (record := self.record(one)) is not None]

    def record(self, submission: Submission) -> Record | None:
        return read_record(self.arena.ledger, submission.id)

    def wait_for_step(self, submission: Submission, step: str) -> None:
        """Until a step of this name has been stored."""
        prefix = f"submissions/{submission.id}/stages/{step}"
        wait_until(lambda: self.arena.ledger.keys(prefix), self.story)

    def attempts(self, submission: Submission) -> list[Lease]:
        """What each attempt used."""
        return attempts(self.arena.ledger, submission.id)

    def faults(self, submission: Submission) -> list[bool]:
        """Of each attempt, whether it ended by a fault of ours."""
        return [lease.ours for lease in self.attempts(submission)]

    def attempt_of(self, submission: Submission, step: str) -> int:
        """Which attempt did a step."""
        times = step_times(self.arena.ledger, submission.id)
        return next(time.attempt for time in times if time.name == step)

    def pods_of(self, submission: Submission) -> list[str]:
        """Names of the pods that have the pair of timed runs and the cap."""
        names = {step.name for step in step_times(self.arena.ledger, submission.id)}
        pods = [name.removeprefix("timed-") for name in names if name.startswith("timed-")]
        return [pod for pod in pods if {f"anchor-{pod}", f"capped-serve-{pod}"} <= names]

    def began(self, submission: str) -> datetime:
        """When the candidate was first timed."""
        times = step_times(self.arena.ledger, submission)
        return min(time.started_at for time in times if time.name.startswith("timed-"))

    def forget_the_anchor(self) -> None:
        """Its reusable part is to be asked for again."""
        shutil.rmtree(Path(self.arena.settings.ledger) / "tasks" / "fake" / "anchors")

    def cancel(self, submission: Submission) -> None:
        """As its participant does it."""
        cancellation = Cancellation(by="somebody", at=now(), reason="a test")
        key = f"submissions/{submission.id}/cancelled.json"
        assert self.arena.ledger.create(key, cancellation.model_dump_json().encode())

    @contextlib.contextmanager
    def held(self, *submissions: Submission) -> Iterator[None]:
        """They go no further than to their last server, all timed and the pod in hand, until the block ends.

        For whoever strikes one: without it a machine that is busy elsewhere could find it at its end already.
        """
        stages = [self._object(one, "stages/later.json") for one in submissions]
        for path in stages:
            path.mkdir(
                parents=True
            )  # a folder in the place of the step's object: for its driver the store is away
        try:
            yield
        finally:
            for path in stages:
                path.rmdir()

    def on_pod(self, submission: Submission) -> bool:
        """Whether it has its pod just now."""
        lease = read_lease(self.arena.ledger, submission.id)
        return lease is not None and not lease.released and lease.pod == "held"

    def _object(self, submission: Submission, name: str) -> Path:
        return Path(self.arena.settings.ledger) / "submissions" / submission.id / name

    @contextlib.contextmanager
    def store_away(self) -> Iterator[None]:
        """A file in the place of the ledger's folder: whatever is asked of it fails."""
        root = Path(self.arena.settings.ledger)
        root.rename(root.with_name("away"))
        root.write_text("")
        try:
            yield
        finally:
            root.unlink()
            root.with_name("away").rename(root)

    def drain(self, node: FakeNode, *, seconds: int) -> None:
        """As an autoscaler or a cloud's warning does it; the node ends by itself."""
        code = (
            "import sys, ray; ray.init(log_to_driver=False); "
            "mine = lambda n: n['Alive'] and n['Labels'].get('lowbit-host') == sys.argv[1]; "
            "print(*(n['NodeID'] for n in ray.nodes() if mine(n)))"
        )
        environment = self.cluster.driver_environment()
        name = subprocess.run(
            [sys.executable, "-c", code, node.label],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        options = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a test"]
        options += ["--deadline-remaining-seconds", str(seconds)]
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "drain-node",
            "--address",
            self.cluster.address,
        ]
        subprocess.run(
            [*command, "--node-id", name, *options], env=environment, check=True, capture_output=True
        )
        self.cluster.nodes.remove(node)
        self.cluster.retired.append(node)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Processes of this scene whose command line has all of these words."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(command(process))
                mine = str(self.arena.root) in line or self.arena.settings.ledger == process.environ().get(
                    "LOWBIT_LEDGER"
                )
                if mine and all(word in line for word in words):
                    found.append(process)
        return found

    def driver(self, submission: Submission) -> psutil.Process:
        """The driver's own process, not the shell around it."""
        return wait_until(lambda: self.processes("-m jobs.evaluate", submission.id), self.story)[-1]

    def engines(self, folder: str = "") -> list[psutil.Process]:
        """The engines themselves, not what supervises them; those whose model lies below `folder`."""
        return [
            one
            for one in self.processes("engine.py", "--model", folder)
            if "supervisor.py" not in "".join(command(one))
        ]

    def actors(self) -> list[psutil.Process]:
        return self.processes("ray::EngineActor")

    def wait_until_idle(self) -> None:
        """Until no driver, actor or engine is left."""
        wait_until(
            lambda: not (self.processes("jobs.evaluate") or self.actors() or self.processes("--model")),
            lambda: (
                f"left behind: {self.processes('jobs.evaluate'), self.actors(), self.processes('--model')}"
            ),
            60,
        )

    def story(self) -> str:
        """What the dispatchers said, for a test that fails."""
        logs = sorted(self.cluster.root.glob("dispatcher-*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in logs)

    def close(self) -> None:
        for process in self.dispatchers:
            end(process)
        self.cluster.close()
        shutil.rmtree(self.cluster.root, ignore_errors=True)


def command(process: psutil.Process) -> list[str]:
    """Its command line; empty where it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def wait_until(done: Callable[[], Any], story: Callable[[], str], seconds: float = SECONDS) -> Any:
    """What `done` returns once that is true; fails with the story."""
    deadline = time.monotonic() + seconds
    while not (value := done()):
        assert time.monotonic() < deadline, story()
        time.sleep(0.1)
    return value


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process in good order, or otherwise."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
