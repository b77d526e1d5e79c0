"""Taking a submission in: checked, within its quota, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lowbit_ray.index import Standing, accept
from lowbit_ray.journal import log_action
from lowbit_ray.people import Person
from lowbit_ray.service.addresses import allowed_address
from lowbit_ray.service.desk import Desk
from lowbit_ray.service.handed_in import NewSubmission
from lowbit_ray.service.limits import seconds
from lowbit_ray.service.problems import Refusal
from lowbit_ray.service.quota import limit_of, take
from lowbit_ray.standing import find_submission
from lowbit_ray.submission import Address, Submission, new_id

__all__ = ["take_in"]


def take_in(desk: Desk, person: Person, body: NewSubmission, key: str | None) -> tuple[bool, Standing]:
    """Stores the submission; whether it is new, and where it stands.

    Raises SubmissionError for an address that is not allowed; Refusal for an unknown task, a used-up quota, or a
    key that was used for something else.
    """
    task = desk.tasks.get(body.task)
    if task is None:
        raise Refusal(422, "No such task", field="task", expected=f"one of {', '.join(desk.tasks)}")
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
        detail = "It took the submission and does not give it back yet."
        raise Refusal(503, "The store is away", detail, headers={"Retry-After": seconds(5)})
    if not new and _said(standing.submission) != _said(submission):  # two with one key at the same moment
        raise Refusal(409, "The idempotency key was used for another submission", field="Idempotency-Key")
    return new, standing


def _submission(desk: Desk, person: Person, body: NewSubmission, name: str) -> Submission:
    return Submission(
        id=name,
        participant=person.name,
        agent=body.agent,
        task_id=body.task,
        track=body.track,
        split=body.split,
        partition="reference" if body.reference else "participant",
        checkpoint=_checkpoint(desk, person, body),
        engine=_engine(desk, person, body),
        declared_precision=body.precision,
        method=body.method,
        created_at=datetime.now(UTC),
    )


def _checkpoint(desk: Desk, person: Person, body: NewSubmission) -> Address:
    if body.checkpoint is not None:
        for name in ("repository", "commit"):
            if getattr(body, name) is not None:
                raise Refusal(422, "Said twice", "`checkpoint` says where it lies already.", field=name)
        return allowed_address(body.checkpoint, "checkpoint", desk.settings.buckets, folders=person.organizer)
    if body.repository is None:
        expected = "`repository` and `commit`, or `checkpoint`"
        raise Refusal(422, "No checkpoint is named", field="repository", expected=expected)
    if body.commit is None:
        detail = "A branch or a tag can move: `git rev-parse HEAD` in the repository says it."
        raise Refusal(422, "The commit is missing", detail, field="commit", expected="40 hexadecimal digits")
    return allowed_address(f"{body.repository}@{body.commit}", "repository", desk.settings.buckets)


def _engine(desk: Desk, person: Person, body: NewSubmission) -> Address | None:
    if body.track == "engine" and body.engine is None:
        expected = "the address of a folder with launch.sh"
        raise Refusal(422, "The engine track needs an engine", field="engine", expected=expected)
    if body.engine is None:
        return None
    if body.track != "engine":
        raise Refusal(422, "The checkpoint track has no engine", field="track", expected="engine")
    return allowed_address(body.engine, "engine", desk.settings.buckets, folders=person.organizer)


def _said(submission: Submission) -> dict[str, object]:
    """All but when it was said."""
    return submission.model_dump(exclude={"created_at"})


def _used_up(split: str, limit: int) -> Refusal:
    if split == "test":
        detail = (
            f"{limit} scored submissions a task; cancelled ones and faults of ours give their place back."
        )
        return Refusal(403, "No scored submission is left", detail, field="split")
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    detail = f"{limit} dev submissions a task and day; the next day begins at 00:00 UTC."
    headers = {"Retry-After": seconds((midnight - now).total_seconds())}
    return Refusal(429, "No dev submission is left today", detail, field="split", headers=headers)
