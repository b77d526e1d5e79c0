"""The driver: one submission through its stages, resumable at any moment.

    build → contract → (pod: efficiency, quality) → score

Run by `python -m jobs.evaluate ID` as a Ray job, and by `lowbit evaluate`. Ray must have been initialized. What
a stage finished stands in the ledger; whoever comes next goes on from there.
"""

from __future__ import annotations

from lowbit_ray.checkpoint.contract import Contract
from lowbit_ray.errors import AbsentError, ConfigError, EngineError, SubmissionError
from lowbit_ray.lease import LeaseHeld, Tenure, hold
from lowbit_ray.ledger import Ledger
from lowbit_ray.metrics import StepMetrics
from lowbit_ray.patience import PatientLedger, open_patiently
from lowbit_ray.progress import LedgerWatch, Watch, Watches
from lowbit_ray.records import Record, parse_record
from lowbit_ray.rules import load_rules
from lowbit_ray.session import ray_session
from lowbit_ray.settings import Settings, settings
from lowbit_ray.stages.build import build
from lowbit_ray.stages.context import Cancelled, Evaluation
from lowbit_ray.stages.contract import contract
from lowbit_ray.stages.hidden import prepare
from lowbit_ray.stages.on_pod import measure_on_pod
from lowbit_ray.stages.quality import score_quality
from lowbit_ray.stages.verdict import failed_record, scored_record
from lowbit_ray.standing import find_submission
from lowbit_ray.submission import Submission
from lowbit_ray.tasks import load_task

__all__ = ["BUSY", "abandon", "evaluate", "read_record", "read_submission", "run"]

BUSY = 75
"""Exit code of a driver that could not begin, and by no fault: EX_TEMPFAIL of sysexits.h."""


def evaluate(submission_id: str, *, ledger: Ledger, settings: Settings, watch: Watch) -> Record:
    """Evaluates a submission and stores its record; a finished one is only read.

    A fault of the participant's (SubmissionError, EngineError) becomes a record that says so. Raises LeaseHeld
    where somebody else is at it, Cancelled, and InfraError for faults of our own: try again, nothing is lost.
    """
    record = read_record(ledger, submission_id)
    if record is not None:
        return record
    submission = read_submission(ledger, submission_id)
    with (
        hold(ledger, submission_id) as tenure,
        LedgerWatch(ledger, submission_id, tenure.lease.attempt) as told,
    ):
        watches = Watches(watch, told, StepMetrics())
        evaluation = _open(submission, ledger, settings, watches, tenure)
        try:
            record = _evaluate(evaluation)
        except (KeyboardInterrupt, SystemExit):
            if ledger.read(f"submissions/{submission_id}/cancelled.json") is None:
                raise
            # ended because of it, so by no fault of ours
            raise Cancelled("the submission was cancelled", where=submission_id) from None
        if tenure.lost.is_set():
            raise LeaseHeld("the lease was lost to another process", where=submission_id)
        if not evaluation.ledger.create(
            f"submissions/{submission_id}/record.json", record.to_json().encode()
        ):
            record = read_record(evaluation.ledger, submission_id) or record  # the one that stands
    return record


def abandon(submission_id: str, reason: str, *, ledger: Ledger, settings: Settings) -> Record:
    """Records a submission that we could not measure as failed, free of charge; a finished one is only read.

    Raises LeaseHeld where somebody evaluates it.
    """
    record = read_record(ledger, submission_id)
    if record is not None:
        return record
    submission = read_submission(ledger, submission_id)
    with hold(ledger, submission_id) as tenure:
        evaluation = _open(submission, ledger, settings, _Unwatched(), tenure)
        record = failed_record(evaluation, "failed", reason, evaluation.finished("contract", Contract))
        record = record.model_copy(update={"charged_hours": 0.0})
        ledger.create(f"submissions/{submission_id}/record.json", record.to_json().encode())
    return record


def run(submission_id: str, watch: Watch) -> Record:
    """Evaluates a submission of the configured ledger on the Ray cluster this process belongs to.

    Within a Ray job, or with RAY_ADDRESS set, that is the cluster there; otherwise a Ray of this machine alone,
    ended with the evaluation. Errors as `evaluate`.
    """
    configured = settings()
    ledger = open_patiently(configured.ledger)
    shape = load_task(read_submission(ledger, submission_id).task_id, configured.tasks).pod
    with ray_session(shape.cpus):
        return evaluate(submission_id, ledger=ledger, settings=configured, watch=watch)


class _Unwatched:
    """Nobody is told."""

    def begin(self, step: str) -> None: ...

    def progress(self, what: str, done: int, total: int) -> None: ...

    def end(self, step: str, seconds: float, *, reused: bool) -> None: ...


def _evaluate(evaluation: Evaluation) -> Record:
    try:
        built = build(evaluation)
        verdict = contract(evaluation, built)
        hidden = prepare(evaluation, built)
        on_pod = measure_on_pod(evaluation, built, hidden)
        quality = score_quality(evaluation, hidden, on_pod.anchor, on_pod.asked)
        return scored_record(evaluation, verdict, on_pod, quality)
    except AbsentError as error:  # a mistyped address is no broken contract: no score of 0, no place used
        return failed_record(evaluation, "failed", error, None)
    except SubmissionError as error:
        return failed_record(evaluation, "rejected", error, evaluation.finished("contract", Contract))
    except EngineError as error:
        return failed_record(evaluation, "failed", error, evaluation.finished("contract", Contract))


def _open(
    submission: Submission, ledger: Ledger, settings: Settings, watch: Watch, tenure: Tenure
) -> Evaluation:
    return Evaluation(
        submission=submission,
        task=load_task(submission.task_id, settings.tasks),
        rules=load_rules(settings.rules),
        ledger=PatientLedger(ledger),
        settings=settings,
        tenure=tenure,
        watch=watch,
    )


def read_submission(ledger: Ledger, submission_id: str) -> Submission:
    """The submission as it was handed in; ConfigError where there is none of this id."""
    submission = find_submission(ledger, submission_id)
    if submission is None:
        raise ConfigError(
            "no such submission", where="ledger", found=submission_id, expected="a submission's id"
        )
    return submission


def read_record(ledger: Ledger, submission_id: str) -> Record | None:
    """The record of a finished submission, None while there is none."""
    entry = ledger.read(f"submissions/{submission_id}/record.json")
    return None if entry is None else parse_record(entry.data)
