"""Many evaluations on many GPUs: the dispatcher's makespan beside the lower bound, and what dispatching costs.

    python benchmarks/scale.py [--nodes 4] [--hold 20] [--counts 50,100,200,400] [--out benchmarks/results/scale.json]

Real: the ledger, its index, leases, the order, the dispatcher, Ray's placement on a cluster of processes with eight
imagined GPUs a node. Not real: a driver is a thread that prepares, gets its pod as drivers do, holds it for a drawn
time and writes a record; two cores carry no 36 driver processes with their engines. What a driver process costs is
measured beside: its memory, and the time from `ray job submit` to its first line. Times are scaled: an evaluation
of 18 minutes holds its pod for `--hold` seconds, so what does not scale (Ray looks at a waiting group about once a
second, the dispatcher at the ledger once a second) weighs fifty times what it does in earnest.
"""

from __future__ import annotations

import argparse
import datetime
import heapq
import importlib.metadata
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # before Ray is imported, which reads it
    sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1])]
    os.environ["RAY_AUTH_MODE"] = "disabled"

import ray
from fakes.cluster import FakeCluster

from lowbit_ray.dispatch.dispatcher import Dispatcher
from lowbit_ray.dispatch.jobs import Job, RayJobs
from lowbit_ray.dispatch.order import Limits, in_order, waiting
from lowbit_ray.dispatch.tickets import Backoff
from lowbit_ray.engines.nodes import Node
from lowbit_ray.engines.placement import alive_nodes, find_place
from lowbit_ray.engines.turn import Turn
from lowbit_ray.index import Index, accept
from lowbit_ray.lease import hold
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.migration import SCHEMA
from lowbit_ray.submission import Address, Submission, new_id
from lowbit_ray.tasks import PodShape

ROOT = Path(__file__).parents[1]
SHAPE = PodShape(tensor_parallel=1, cpus=1, memory_gib=0.01, may_share_host=True, wait_s=3600)
GPUS = 8
PREPARE_S, SCORE_S = 1.0, 0.5
RECORD = json.dumps(
    json.loads((ROOT / "tests/fixtures/record-a553eefea2d24359.json").read_text())
    | {"schema_version": SCHEMA}
).encode()


@dataclass(frozen=True, slots=True)
class Held:
    """One evaluation's pod."""

    asked: float
    given: float
    back: float


@dataclass(slots=True)
class Threads:
    """Drivers as threads, where the dispatcher expects Ray's job server."""

    ledger: FolderLedger
    hold_s: dict[str, float]
    held: list[Held] = field(default_factory=list)
    jobs: dict[str, threading.Thread] = field(default_factory=dict)
    most: int = 0

    def start(self, submission: str, job: int, labels: dict[str, str]) -> None:
        name = f"{submission}-{job}"
        if name not in self.jobs:
            self.jobs[name] = threading.Thread(
                target=self._drive, args=(submission, labels["split"]), daemon=True
            )
            self.jobs[name].start()
            self.most = max(self.most, sum(one.is_alive() for one in self.jobs.values()))

    def look(self, submission: str, job: int) -> Job | None:
        thread = self.jobs.get(f"{submission}-{job}")
        return None if thread is None else Job("active" if thread.is_alive() else "ended")

    def stop(self, submission: str, job: int) -> None:
        raise AssertionError("nothing is cancelled here")

    def nodes(self) -> list[Node]:
        return alive_nodes()

    def _drive(self, submission: str, split: str) -> None:
        with hold(self.ledger, submission) as tenure:
            time.sleep(PREPARE_S)
            asked = time.monotonic()
            place = find_place(
                SHAPE,
                deadline=asked + SHAPE.wait_s,
                quarantined=lambda: (),
                waiting=lambda why: None,
                turn=Turn(scored=split == "test"),
            )
            given = time.monotonic()
            tenure.tell_pod("held")
            time.sleep(max(0.0, given + self.hold_s[submission] - time.monotonic()))
            place.give_back()
            self.held.append(Held(asked, given, time.monotonic()))
            tenure.tell_pod("after")
            time.sleep(SCORE_S)
            record = RECORD.replace(b"a553eefea2d24359", submission.encode())
            self.ledger.create(f"submissions/{submission}/record.json", record)


def fill(ledger: FolderLedger, count: int, hold_s: float, seed: int) -> dict[str, float]:
    """Submissions of seven participants, a fifth of them scored; how long each holds its pod, ± 25 %."""
    draw, start = random.Random(seed), datetime.datetime.now(datetime.UTC)
    times: dict[str, float] = {}
    for number in range(count):
        submission = Submission(
            id=new_id("scale", str(seed), str(count), str(number)),
            participant=f"p{draw.randrange(7)}",
            task_id="any",
            split="test" if draw.random() < 0.2 else "dev",
            checkpoint=Address(kind="folder", location="/anywhere"),
            method="m",
            created_at=start + datetime.timedelta(milliseconds=number),
        )
        assert accept(ledger, submission)
        times[submission.id] = hold_s * draw.uniform(0.75, 1.25)
    return times


def ordered(ledger: FolderLedger, times: dict[str, float]) -> dict[str, float]:
    """The same in the dispatcher's order."""
    index = Index(ledger)
    index.refresh()
    return {one.id: times[one.id] for one in in_order(waiting(index.standings.values()), [], {})}


def without_dispatch_s(times: dict[str, float], pods: int) -> float:
    """The makespan in this order if every pod changed hands in no time: evaluations are not divisible."""
    free = [0.0] * pods
    for hold_s in times.values():
        heapq.heapreplace(free, free[0] + hold_s)
    return max(free) + PREPARE_S + SCORE_S


def measure(count: int, pods: int, hold_s: float) -> dict[str, Any]:
    """One run of so many evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = FolderLedger(Path(folder))
        times = ordered(ledger, fill(ledger, count, hold_s, seed=1))
        threads = Threads(ledger, times)
        dispatcher = Dispatcher(
            ledger,
            threads,
            shape_of=lambda task: SHAPE,
            abandon=lambda name, reason: None,
            limits=Limits(),
            backoff=Backoff(),
        )
        looks: list[float] = []
        cpu, started = time.thread_time(), time.monotonic()
        while len(threads.held) < count or any(one.is_alive() for one in threads.jobs.values()):
            before = time.monotonic()
            dispatcher.look()
            looks.append(time.monotonic() - before)
            time.sleep(1.0)
        makespan, cpu = time.monotonic() - started, time.thread_time() - cpu
        memory = dispatcher_mib(Path(folder))
    total = math.fsum(times.values())
    bound = max(total / pods, max(times.values())) + PREPARE_S + SCORE_S
    without = without_dispatch_s(times, pods)
    return {
        "evaluations": count,
        "makespan_s": round(makespan, 1),
        "lower_bound_s": round(bound, 1),
        "ratio": round(makespan / bound, 3),
        "without_dispatch_s": round(without, 1),
        "ratio_to_without_dispatch": round(makespan / without, 3),
        "pods_busy": round(total / pods / makespan, 3),
        "wait_for_a_free_pod_s": idle(threads.held, pods),
        "dispatcher_cpu_ms_an_evaluation": round(1000 * cpu / count, 2),
        "look_ms_median": round(1000 * statistics.median(looks), 1),
        "look_ms_most": round(1000 * max(looks), 1),
        "drivers_most": threads.most,
        "dispatcher_mib": memory,
    }


def idle(held: list[Held], pods: int) -> float:
    """Mean seconds from a pod's return to its next evaluation, while evaluations were left."""
    given = sorted(one.given for one in held)[pods:]
    back = sorted(one.back for one in held)[: len(given)]
    return (
        round(statistics.fmean(after - before for before, after in zip(back, given, strict=True)), 2)
        if given
        else 0.0
    )


def dispatcher_mib(ledger: Path) -> float:
    """Peak memory of a dispatcher process that has looked at this ledger."""
    code = (
        "import resource, sys; from lowbit_ray.dispatch.jobs import RayJobs; from lowbit_ray.index import Index; "
        "import jobs.dispatch; from lowbit_ray.ledger import FolderLedger; from pathlib import Path; "
        "Index(FolderLedger(Path(sys.argv[1]))).refresh(); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ledger)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return round(float(done.stdout), 0)


def driver(cluster: FakeCluster) -> dict[str, float]:
    """A driver process: its memory once it has joined the cluster, and how long Ray's job server takes to start it."""
    code = (
        "import os, time, psutil, jobs.evaluate, ray; ray.init(log_to_driver=False); "
        "print(psutil.Process().memory_full_info().uss / 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=cluster.driver_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    jobs = RayJobs(cluster.dashboard)
    took = []
    for number in range(3):
        began = time.monotonic()
        jobs.start(f"{number:016x}", 0, {})
        while (job := jobs.look(f"{number:016x}", 0)) is None or job.status == "active":
            time.sleep(0.05)
        took.append(time.monotonic() - began)
    return {
        "uss_mib": round(float(done.stdout.split()[-1])),
        "from_submit_to_end_of_an_empty_one_s": round(min(took), 1),
    }


def main() -> None:
    """Runs all counts on one cluster and writes the results."""
    parser = argparse.ArgumentParser(description="The dispatcher's makespan and cost on a fake cluster.")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument(
        "--hold", type=float, default=20.0, metavar="S", help="a pod is held so long, ± 25 %%"
    )
    parser.add_argument("--counts", default="50,100,200,400")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    pods = options.nodes * GPUS
    with tempfile.TemporaryDirectory(prefix="lb-") as folder:
        cluster = FakeCluster(Path(folder), {"LOWBIT_LEDGER": f"{folder}/none"})
        try:
            cluster.start_head()
            ray.init(address=cluster.address, namespace="lowbit", log_to_driver=False, logging_level="error")
            for count in range(1, options.nodes + 1):
                cluster.add_node(GPUS)
                while ray.cluster_resources().get("GPU", 0) < count * GPUS:
                    cluster.mend(GPUS)
                    time.sleep(0.5)
            runs = []
            for count in map(int, options.counts.split(",")):
                runs.append(measure(count, pods, options.hold))
                print(json.dumps(runs[-1]), flush=True)
            result = {
                "date": datetime.date.today().isoformat(),
                "machine": f"{len(os.sched_getaffinity(0))} cores of {processor()}, load {os.getloadavg()[2]:.0f}",
                "releases": {name: importlib.metadata.version(name) for name in ("lowbit-ray", "ray")}
                | {"python": platform.python_version()},
                "cluster": {"nodes": options.nodes, "gpus": pods, "raylet_trees_mib": trees_mib(cluster)},
                "scaled": {
                    "hold_s": options.hold,
                    "prepare_s": PREPARE_S,
                    "score_s": SCORE_S,
                    "drivers": "threads",
                },
                "driver": driver(cluster),
                "runs": runs,
            }
            ray.shutdown()
        finally:
            cluster.close()
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


def trees_mib(cluster: FakeCluster) -> int:
    """Memory of all of Ray's processes."""
    nodes = [cluster.head, *cluster.nodes]
    trees = [process for node in nodes if node is not None for process in node.tree()]
    return round(sum(process.memory_full_info().uss for process in trees) / 2**20)


def processor() -> str:
    """As the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
