"""Evaluates a reference: a checkpoint that the board shows beside the participants, unranked and free of charge."""

from __future__ import annotations

from lowbit_ray.evaluate import evaluate
from lowbit_ray.index import accept
from lowbit_ray.journal import account, log_action
from lowbit_ray.ledger import Ledger, open_ledger
from lowbit_ray.progress import Watch
from lowbit_ray.records import Record
from lowbit_ray.rules import load_rules
from lowbit_ray.session import ray_session
from lowbit_ray.settings import Settings, settings
from lowbit_ray.stages.build import source_address
from lowbit_ray.standing import find_submission
from lowbit_ray.submission import Submission, new_id, now, parse_address
from lowbit_ray.tasks import load_task

__all__ = ["ANCHOR", "run", "submit"]

ANCHOR = "anchor"
"""In the place of an address: the task's own source."""


def submit(
    task_id: str,
    checkpoint: str,
    name: str,
    *,
    method: str,
    precision: str | None,
    ledger: Ledger,
    settings: Settings,
) -> Submission:
    """Hands a reference in; the same one again, under the same rules, is the one that is there.

    `name` is the row's name on the board: a later reference of the same name takes its place. Raises ConfigError
    for an unknown task, SubmissionError for what is no address.
    """
    task = load_task(task_id, settings.tasks)
    address = parse_address(source_address(task, settings) if checkpoint == ANCHOR else checkpoint)
    version = load_rules(settings.rules).version
    submission = Submission(
        id=new_id("reference", task.id, version, name, str(address), precision or ""),
        participant=name,
        task_id=task.id,
        split="test",
        partition="reference",
        checkpoint=address,
        declared_precision=precision,
        method=method,
        created_at=now(),
    )
    if find_submission(ledger, submission.id) is None:
        log_action(ledger, f"job: {account()}", "submitted a reference", submission.id, method)
    accept(ledger, submission)
    return submission


def run(
    task_id: str, checkpoint: str, name: str, watch: Watch, *, method: str, precision: str | None
) -> Record:
    """Submits a reference to the configured ledger and evaluates it on the Ray cluster this process belongs to.

    Errors as `submit` and as `evaluate`: LeaseHeld where a dispatcher was quicker, which evaluates it as well.
    """
    configured = settings()
    ledger = open_ledger(configured.ledger)
    submission = submit(
        task_id, checkpoint, name, method=method, precision=precision, ledger=ledger, settings=configured
    )
    with ray_session(load_task(task_id, configured.tasks).pod.cpus):
        return evaluate(submission.id, ledger=ledger, settings=configured, watch=watch)
