"""Measures the noise floor of a task: the anchor is evaluated against itself, on the path that every candidate takes.

Each evaluation is a reference submission on the dev split, so it stands on no board, charges nobody, and is not
queued: whoever calls `measure_noise_floor` runs it. An interrupted one is taken up again by the next call.
"""

from __future__ import annotations

from lowbit_ray.errors import ConfigError, LedgerError
from lowbit_ray.evaluate import evaluate, read_record
from lowbit_ray.ledger import Ledger, open_ledger
from lowbit_ray.measure.noise_floor import FloorRun, FloorRuns
from lowbit_ray.progress import Watch
from lowbit_ray.records import Record
from lowbit_ray.rules import load_rules
from lowbit_ray.session import ray_session
from lowbit_ray.settings import Settings, settings
from lowbit_ray.stages.build import source_address
from lowbit_ray.stages.floor import floor_key, measurement_of, read_runs
from lowbit_ray.standing import keep_submission
from lowbit_ray.submission import Submission, new_id, now, parse_address
from lowbit_ray.tasks import Task, load_task

__all__ = ["PARTICIPANT", "measure_noise_floor", "run"]

PARTICIPANT = "noise floor"
METHOD = "the anchor itself, for the noise floor"
TRIES = 20
"""Of a swap that others are swapping too."""


def run(task_id: str, times: int, watch: Watch) -> FloorRuns:
    """As `measure_noise_floor`, with the configured ledger, on the Ray cluster this process belongs to or its own."""
    configured = settings()
    task = load_task(task_id, configured.tasks)
    with ray_session(task.pod.cpus):
        return measure_noise_floor(
            task, times, ledger=open_ledger(configured.ledger), settings=configured, watch=watch
        )


def measure_noise_floor(
    task: Task, times: int, *, ledger: Ledger, settings: Settings, watch: Watch
) -> FloorRuns:
    """Evaluates the anchor against itself `times` more times; what all evaluations so far have found.

    Each is stored as soon as it is done. Raises ConfigError where the anchor does not pass its own rules: then the
    task's limits are wrong. InfraError as `evaluate`; the next call goes on from there.
    """
    if times < 1:
        raise ConfigError("the noise floor takes at least one evaluation", where="times", found=times)
    runs = read_runs(ledger, task.id)
    for number in range(times):
        watch.progress("the anchor against itself", number + 1, times)
        submission = _submit(task, ledger, settings, runs)
        record = evaluate(submission.id, ledger=ledger, settings=settings, watch=watch)
        runs = _add(ledger, record)
    return runs


def _add(ledger: Ledger, record: Record) -> FloorRuns:
    """Adds one evaluation to the task's noise floor; ConfigError where it has no score to add."""
    key, added = floor_key(record.task_id), _run_of(record)
    for _ in range(TRIES):
        entry = ledger.read(key)
        runs = read_runs(ledger, record.task_id).with_run(added)
        data = runs.model_dump_json().encode()
        if ledger.create(key, data) if entry is None else ledger.swap(key, data, entry.version):
            return runs
    raise LedgerError("somebody else changes it all the time", where=key)


def _submit(task: Task, ledger: Ledger, settings: Settings, runs: FloorRuns) -> Submission:
    """The first evaluation that is not part of the floor yet: begun by an earlier call, or new."""
    known = {run.submission for run in runs.runs}
    version = load_rules(settings.rules).version
    number = 0
    while (identity := new_id(PARTICIPANT, task.id, version, str(number))) in known or _is_over(
        ledger, identity
    ):
        number += 1
    submission = Submission(
        id=identity,
        participant=PARTICIPANT,
        task_id=task.id,
        split="dev",
        partition="reference",
        checkpoint=parse_address(source_address(task, settings)),
        method=METHOD,
        created_at=now(),
    )
    return keep_submission(ledger, submission)[0]


def _is_over(ledger: Ledger, submission: str) -> bool:
    """Whether it was cancelled or has no score: nothing that could be added."""
    if ledger.read(f"submissions/{submission}/cancelled.json") is not None:
        return True
    record = read_record(ledger, submission)
    return record is not None and record.status != "done"


def _run_of(record: Record) -> FloorRun:
    result, host = record.result, record.host
    if result is None or host is None or record.status != "done":
        raise ConfigError(
            "the anchor does not pass its own evaluation",
            where=f"{record.task_id}: submission {record.id}",
            found=record.error or (result.reason if result else record.status),
            remedy="Look at the task's limits and at what else runs on this machine.",
        )
    return FloorRun(
        submission=record.id,
        finished_at=record.updated_at,
        measurement=measurement_of(host, result.anchor.startup, record.rules_version),
        speeds=result.speeds,
        speed=result.speed,
        memory=result.memory,
        kl=result.kl.kl,
        mean_drop=result.mean_drop,
        length_shift=result.length_shift,
        score=result.score,
    )
