"""Taking a submission in: checked, within its quota, once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from lowbit_ray.index import Standing, accept
from lowbit_ray.journal import log_action
from lowbit_ray.people import Person
from lowbit_ray.service.addresses import allowed_address
from lowbit_ray.service.desk import Desk
from lowbit_ray.service.problems import Refusal
from lowbit_ray.service.quota import limit_of, take
from lowbit_ray.service.views import Shown
from lowbit_ray.standing import find_submission
from lowbit_ray.submission import Submission, new_id

__all__ = ["NewSubmission", "Words", "take_in"]

COMMIT = "5f2c1d0e9b8a7f6e5d4c3b2a190817263544ab0c"


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable characters on one line")
    return text


Words = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Where = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_printable)]


class NewSubmission(Shown):
    """What a participant hands in."""

    task: Annotated[str, Field(min_length=1, max_length=64, examples=["qwen3-8b"])]
    """A task of `GET /api/tasks`."""
    checkpoint: Annotated[Where, Field(examples=[f"owner/name@{COMMIT}", "s3://bucket/prefix"])]
    """A hub repository at a commit, `owner/name@<40 hex digits>`, or a folder of an allowed bucket."""
    engine: Annotated[Where | None, Field(examples=[None])] = None
    """Where `launch.sh` lies, on the engine track."""
    track: Literal["checkpoint", "engine"] = "checkpoint"
    """`checkpoint`: served by the arena's vLLM. `engine`: by the participant's own server."""
    precision: (
        Annotated[str, Field(pattern=r"^W[0-9.]{1,8}A[0-9.]{1,8}KV[0-9.]{1,8}$", examples=["W8A8KV8"])] | None
    ) = None
    """As declared; the bytes are read in any case."""
    split: Literal["dev", "test"] = "dev"
    """`test` is scored and public; few a task."""
    method: Annotated[Words, Field(examples=["FP8 weights and activations, calibrated KV"])]
    """What it is, in a few words."""
    agent: Words | None = None
    """Who acts for the participant, where that is somebody else."""
    reference: bool = False
    """Organizers alone: shown on the board without a rank or a cost."""

    @model_validator(mode="after")
    def _engine_track_needs_an_engine(self) -> NewSubmission:
        if (self.track == "engine") != (self.engine is not None):
            raise ValueError("the engine track needs an `engine`, the checkpoint track has none")
        return self


def take_in(desk: Desk, person: Person, body: NewSubmission, key: str | None) -> tuple[bool, Standing]:
    """Stores the submission; whether it is new, and where it stands.

    Raises SubmissionError for an address that is not allowed; Refusal for an unknown task, a used-up quota, or a
    key that was used for something else.
    """
    task = desk.tasks.get(body.task)
    if task is None:
        raise Refusal(422, "No such task", f"one of {', '.join(desk.tasks)}", field="task")
    if body.reference and not person.organizer:
        raise Refusal(403, "Organizers alone submit references", field="reference")
    submission = _submission(desk, person, body, new_id("submission", person.name, key) if key else new_id())
    before = find_submission(desk.ledger, submission.id) if key else None
    if before is not None:
        if _said(before) != _said(submission):
            raise Refusal(409, "The idempotency key was used for another submission", field="Idempotency-Key")
    else:
        limit = limit_of(person, task, desk.rules, body.split)
        if limit is not None and not take(
            desk.ledger, desk.index, person, task, body.split, submission.id, limit
        ):
            raise _used_up(body.split, limit)
        if body.reference:
            log_action(desk.ledger, person.name, "submitted a reference", submission.id, body.method)
    new = accept(desk.ledger, submission)
    standing = desk.index.reread(submission.id)
    if standing is None:
        raise Refusal(503, "The store is away", "It took the submission and does not give it back yet.")
    if not new and _said(standing.submission) != _said(submission):  # two with one key at the same moment
        raise Refusal(409, "The idempotency key was used for another submission", field="Idempotency-Key")
    return new, standing


def _submission(desk: Desk, person: Person, body: NewSubmission, name: str) -> Submission:
    buckets, folders = desk.settings.buckets, person.organizer
    return Submission(
        id=name,
        participant=person.name,
        agent=body.agent,
        task_id=body.task,
        track=body.track,
        split=body.split,
        partition="reference" if body.reference else "participant",
        checkpoint=allowed_address(body.checkpoint, "checkpoint", buckets, folders=folders),
        engine=allowed_address(body.engine, "engine", buckets, folders=folders) if body.engine else None,
        declared_precision=body.precision,
        method=body.method,
        created_at=datetime.now(UTC),
    )


def _said(submission: Submission) -> dict[str, object]:
    """All but when it was said."""
    return submission.model_dump(exclude={"created_at"})


def _used_up(split: str, limit: int) -> Refusal:
    if split == "test":
        detail = f"{limit} scored submissions a task; one that fails by a fault of ours gives its place back."
        return Refusal(403, "No scored submission is left", detail, field="split")
    detail = f"{limit} dev submissions a task and day (UTC)."
    return Refusal(
        429, "No dev submission is left today", detail, field="split", headers={"Retry-After": "3600"}
    )
