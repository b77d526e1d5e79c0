"""`lowbit demo`: one whole evaluation on this machine, with a small real model on real vLLM servers.

Makes the anchor and a candidate, writes the submission to a folder ledger, starts a local Ray on the cores there
are, and evaluates through the driver that the cluster uses. What is finished stays in the folder: the same command
goes on from there, and a further candidate reuses the anchor's files and results.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lowbit_ray.checkpoint.packaged import make_anchor
from lowbit_ray.demo.quantize import quantize
from lowbit_ray.errors import ConfigError
from lowbit_ray.evaluate import evaluate
from lowbit_ray.index import accept
from lowbit_ray.ledger import Ledger, open_ledger
from lowbit_ray.progress import Watch
from lowbit_ray.records import Record
from lowbit_ray.report.page import result_page
from lowbit_ray.rules import Rules, load_rules
from lowbit_ray.session import ray_session
from lowbit_ray.settings import Settings
from lowbit_ray.submission import Address, Submission, new_id, now
from lowbit_ray.tasks import Task, load_task

__all__ = ["CANDIDATES", "Candidate", "Finished", "run_demo"]

Candidate = Literal["w8a8", "w4a16", "bf16"]
CANDIDATES: tuple[Candidate, ...] = ("w8a8", "w4a16", "bf16")
DECLARED = {"w8a8": "W8A8KV16", "w4a16": "W4A16KV16", "bf16": "W16A16KV16"}
METHODS = {
    "w8a8": "round to nearest, int8 weights a channel, dynamic int8 activations a token",
    "w4a16": "round to nearest, int4 weights in groups of 32",
    "bf16": "the anchor itself",
}


@dataclass(frozen=True, slots=True)
class Finished:
    """What a demo leaves behind."""

    record: Record
    record_path: Path
    page_path: Path


def run_demo(folder: Path, candidate: Candidate, task_id: str, watch: Watch) -> Finished:
    """Runs the demo in `folder`; InfraError and Ctrl-C leave it resumable."""
    settings = Settings(ledger=str(folder / "ledger"), cache=folder / "cache")
    task, rules = load_task(task_id, settings.tasks), load_rules(settings.rules)
    watch.progress("making the anchor and the candidate", 0, 0)
    checkpoint = _checkpoint(settings, task, candidate)
    ledger = open_ledger(settings.ledger)
    submission = _submit(ledger, task, candidate, checkpoint, rules)
    with ray_session(task.pod.cpus, local=True):
        record = evaluate(submission.id, ledger=ledger, settings=settings, watch=watch)
    return _write(folder / "results" / candidate, record)


def _checkpoint(settings: Settings, task: Task, candidate: Candidate) -> Path:
    if task.anchor.package is None:
        raise ConfigError(
            "the demo needs a task whose anchor a package carries",
            where=f"tasks/{task.id}.yaml: anchor.package",
        )
    anchor = make_anchor(task.anchor.package, settings.cache / "made" / task.id)
    if candidate == "bf16":
        return anchor
    return quantize(anchor, settings.cache / "made" / f"{task.id}-{candidate}", candidate)


def _submit(ledger: Ledger, task: Task, candidate: Candidate, checkpoint: Path, rules: Rules) -> Submission:
    """Writes the submission, under an id that the same demo gets again: a second run finds it."""
    submission = Submission(
        id=new_id("demo", task.id, candidate, rules.version),
        participant="demo",
        task_id=task.id,
        split="test",
        checkpoint=Address(kind="folder", location=str(checkpoint.resolve())),
        declared_precision=DECLARED[candidate],
        method=METHODS[candidate],
        created_at=now(),
    )
    accept(ledger, submission)
    return submission


def _write(folder: Path, record: Record) -> Finished:
    folder.mkdir(parents=True, exist_ok=True)
    finished = Finished(record, folder / "record.json", folder / "result.html")
    finished.record_path.write_text(record.to_json() + "\n")
    finished.page_path.write_text(result_page(record))
    return finished
