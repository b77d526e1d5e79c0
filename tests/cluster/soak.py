"""Many evaluations on a cluster to which something happens every few seconds; all of them end with the right score.

    python tests/cluster/soak.py --evaluations 100 --every 4 --minutes 60

CI runs as many of a hundred as its machine begins within some minutes (test_soak.py); by hand it is all of them. They
are handed in a few at a time. What is struck is drawn from a seed, which is printed with each strike, so a run can be
repeated; when it strikes depends on the machine. There are as many strikes as evaluations at most, so that a machine
on which an evaluation takes longer than the time between strikes comes to an end as well.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

if __name__ == "__main__":  # as pytest finds them
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from cluster.scene import Scene, end

from lowbit_ray.recheck import recheck
from lowbit_ray.rules import load_rules
from lowbit_ray.submission import Submission

__all__ = ["Report", "soak"]

WEIGHTS = {
    "driver": 5,
    "actor": 5,
    "engine": 5,
    "dispatcher": 4,
    "store": 2,
    "node": 2,
    "drain": 1,
    "head": 1,
}
"""How often each thing happens beside the others; the expensive ones seldom."""
STORE_S = 3.0
QUIET_S = 2.0
OPEN = 8
"""So many evaluations are at work or wait at any time."""


@dataclass(slots=True)
class Report:
    """What a soak has come to."""

    evaluations: int = 0
    """Handed in."""
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Of the hosts that are alive at the end, since they started: all of it where none was killed."""
    left: list[str] = field(default_factory=list)
    """Command lines of processes that outlived it."""

    def line(self) -> str:
        """One line of JSON."""
        counted = {"struck": dict(self.struck), "struck_total": self.struck.total()}
        kept = {
            name: getattr(self, name)
            for name in ("evaluations", "right", "wrong", "attempts", "seconds", "cpu_s", "left")
        }
        return json.dumps(kept | counted)


@dataclass(slots=True)
class _Soak:
    scene: Scene
    draw: random.Random
    gpus_a_node: int
    report: Report
    dispatcher: subprocess.Popen[str]

    def strike(self) -> None:
        """One thing happens, and what an organizer or an autoscaler does about it."""
        name = self.draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        strikes: dict[str, Callable[[], bool]] = {
            "driver": lambda: self._kill("-m jobs.evaluate"),
            "actor": lambda: self._kill("ray::EngineActor"),
            "engine": lambda: self._kill("engine.py --model", spare="supervisor.py"),
            "dispatcher": self._kill_dispatcher,
            "store": self._store_away,
            "node": self._kill_node,
            "drain": self._drain_node,
            "head": self._kill_head,
        }
        if strikes[name]():
            self.report.struck[name] += 1

    @property
    def goes_on(self) -> bool:
        """Whether there is another strike to come."""
        return self.report.struck.total() < self.report.evaluations

    def _kill(self, words: str, *, spare: str | None = None) -> bool:
        """SIGKILL to one of the processes of the cluster whose command line has these words."""
        found: list[psutil.Process] = []
        for node in [self.scene.cluster.head, *self.scene.cluster.nodes]:
            for process in node.tree() if node is not None else []:
                with contextlib.suppress(psutil.Error):
                    line = " ".join(process.cmdline())
                    if words in line and not (spare and spare in line):
                        found.append(process)
        if not found:
            return False
        with contextlib.suppress(psutil.Error):
            self.draw.choice(found).send_signal(signal.SIGKILL)
        return True

    def _kill_dispatcher(self) -> bool:
        self.dispatcher.kill()
        self.dispatcher.wait()
        self.dispatcher = self.scene.start_dispatcher(*OPTIONS)
        return True

    def _store_away(self) -> bool:
        with self.scene.store_away():
            time.sleep(STORE_S)
        return True

    def _kill_node(self) -> bool:
        node = self.draw.choice(self.scene.cluster.nodes)
        self.scene.cluster.nodes.remove(node)
        node.kill()
        self.scene.cluster.add_node(self.gpus_a_node)
        return True

    def _drain_node(self) -> bool:
        try:
            self.scene.drain(self.draw.choice(self.scene.cluster.nodes), seconds=2)
        except subprocess.CalledProcessError:
            return False  # it has not come up yet
        self.scene.cluster.add_node(self.gpus_a_node)
        return True

    def _kill_head(self) -> bool:
        """Its host is gone, and the nodes with their head."""
        cluster = self.scene.cluster
        count = len(cluster.nodes)
        cluster.kill_head()
        for node in cluster.nodes:
            node.kill()
        cluster.nodes.clear()
        cluster.start_head()
        for _ in range(count):
            cluster.add_node(self.gpus_a_node)
        return True


OPTIONS = ("--faults", "10000", "--ahead", "2")


def soak(
    root: Path,
    *,
    evaluations: int,
    every_s: float,
    minutes: float,
    begin_s: float = math.inf,
    seed: int,
    nodes: int = 2,
    gpus_a_node: int = 2,
    tell: Callable[[str], None],
) -> Report:
    """Runs one; returns when every evaluation has its record, or after so many minutes.

    begin_s: of the evaluations, those that have not been handed in after so many seconds are left out.
    """
    started, report = time.monotonic(), Report()
    scene = Scene.build(root)
    try:
        scene.cluster.start_head()
        for _ in range(nodes):
            scene.cluster.add_node(gpus_a_node)
        scene.warm_up()
        submissions: list[Submission] = []
        running = _Soak(scene, random.Random(seed), gpus_a_node, report, scene.start_dispatcher(*OPTIONS))
        while (elapsed := time.monotonic() - started) < 60 * minutes:
            open_ones = [one for one in submissions if not _over(scene, one)]
            while len(open_ones) < OPEN and len(submissions) < evaluations and elapsed < begin_s:
                open_ones.append(_submit(scene, len(submissions)))
                submissions.append(open_ones[-1])
            report.evaluations = len(submissions)
            tell(
                f"{elapsed:.0f} s, seed {seed}: {len(open_ones)} of {len(submissions)} open, "
                f"struck {dict(report.struck)}"
            )
            if not open_ones:
                break
            time.sleep(running.draw.uniform(0.5, 1.5) * (every_s or QUIET_S))
            scene.cluster.mend(gpus_a_node)
            if every_s and running.goes_on:
                running.strike()
        end(running.dispatcher)
        report.cpu_s = _cpu_s(scene)
        _judge(scene, submissions, report)
        with contextlib.suppress(AssertionError):
            scene.wait_until_idle()
        report.left = [" ".join(one.cmdline())[:200] for one in (*scene.actors(), *scene.engines())]
    except BaseException:
        tell(scene.story())
        raise
    finally:
        scene.close()
    report.seconds = round(time.monotonic() - started, 1)
    return report


def _submit(scene: Scene, number: int) -> Submission:
    split = "test" if number % 5 == 0 else "dev"
    return scene.submit(f"m{number}", participant=f"p{number % 7}", split=split)


def _over(scene: Scene, submission: Submission) -> bool:
    return scene.arena.ledger.read(f"submissions/{submission.id}/record.json") is not None


def _cpu_s(scene: Scene) -> float:
    """CPU seconds of the cluster's processes and of those they have waited for."""
    total = 0.0
    for node in [scene.cluster.head, *scene.cluster.nodes]:
        for process in node.tree() if node is not None else []:
            with contextlib.suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])
    return round(total, 1)


def _judge(scene: Scene, submissions: list[Submission], report: Report) -> None:
    """Counts the right ones, and says what is wrong with the others."""
    rules = load_rules()
    for submission in submissions:
        record = scene.record(submission)
        report.attempts += len(scene.attempts(submission))
        if record is None:
            report.wrong.append(f"{submission.id}: no record")
        elif record.result is None:
            report.wrong.append(f"{submission.id}: {record.status}: {record.error}")
        elif scene.measured(record) != scene.undisturbed:
            report.wrong.append(f"{submission.id}: measured {scene.measured(record)}")
        elif bad := [
            check.name
            for check in recheck(json.loads(record.to_json()), rules, speed_floor=record.result.speed_floor)
            if check.status != "agrees"
        ]:
            report.wrong.append(f"{submission.id}: {bad} differ")
        elif not scene.pods_of(submission):
            report.wrong.append(f"{submission.id}: no pod has the pair of runs and the cap")
        else:
            report.right += 1


def main() -> int:
    """A soak by hand; exit code 1 unless every score is right and nothing is left."""
    parser = argparse.ArgumentParser(
        description="Evaluations on a fake cluster while things are killed.",
        epilog="Example: python tests/cluster/soak.py --evaluations 100 --every 4 --minutes 60",
    )
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument(
        "--every", type=float, default=4.0, metavar="S", help="between two strikes, on average"
    )
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=2, help="imagined GPUs a node")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = soak(
            Path(folder),
            evaluations=options.evaluations,
            every_s=options.every,
            minutes=options.minutes,
            seed=options.seed,
            nodes=options.nodes,
            gpus_a_node=options.gpus,
            tell=lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(report.line())
    return 0 if report.right == options.evaluations and not report.left else 1


if __name__ == "__main__":
    sys.exit(main())
