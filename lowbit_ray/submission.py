"""What a participant hands in, and the states it goes through.

    waiting → running(stage) → done | rejected | failed
        └──────────┴─────────→ cancelled

`done`: it has a score. `rejected`: the contract or the engine rules are broken, the score is 0. `failed`: nothing
lies at its address, its server could not be measured, or we could not measure it (then nothing is charged). No
state is ever stored: `state_of` derives it from which objects the ledger holds.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from lowbit_ray.errors import SubmissionError
from lowbit_ray.rules import _Frozen

__all__ = [
    "IN_TIME",
    "STAGES",
    "Address",
    "State",
    "Submission",
    "new_id",
    "now",
    "parse_address",
    "state_of",
]

STAGES = ("build", "contract", "quality", "efficiency", "score")
"""As records list them."""
IN_TIME = ("build", "contract", "efficiency", "quality", "score")
"""As they are done: the engine is timed (efficiency) before its quality is measured."""

Text = Annotated[str, Field(min_length=1, max_length=200)]


class Address(_Frozen):
    """Where a checkpoint lies."""

    kind: Literal["hub", "s3", "folder"]
    location: Annotated[str, Field(min_length=1, max_length=1024)]
    """`owner/name`, `s3://bucket/prefix` or a path."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Exact commit of a hub repository."""

    @model_validator(mode="after")
    def _hub_needs_a_commit(self) -> Address:
        if (self.kind == "hub") != (self.revision is not None):
            raise ValueError("a hub repository needs its 40-digit commit, and nothing else has one")
        return self

    def __str__(self) -> str:
        return f"{self.location}@{self.revision}" if self.revision else self.location


def parse_address(text: str) -> Address:
    """`owner/name@commit`, `s3://bucket/prefix`, or a path that starts with `/`, `.` or `~`.

    Raises SubmissionError for a branch or tag in the place of the commit, and for anything else.
    """
    if text.startswith("s3://"):
        return Address(kind="s3", location=text)
    if text.startswith(("/", ".", "~")):
        return Address(kind="folder", location=text)
    repository, _, revision = text.partition("@")
    exact = len(revision) == 40 and all(digit in "0123456789abcdef" for digit in revision)
    if repository.count("/") != 1 or not exact:
        raise SubmissionError(
            "not the address of a checkpoint",
            where="address",
            found=text,
            expected="owner/name@<40-digit commit>, s3://bucket/prefix or a path",
            remedy="A branch or a tag can move: name the commit (`git rev-parse HEAD` in the repository).",
        )
    return Address(kind="hub", location=repository, revision=revision)


class Submission(_Frozen):
    """One submission, as it was accepted; never changed afterwards."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    participant: Text
    agent: Text | None = None
    """Who acted for the participant, where that is somebody else."""
    task_id: Text
    track: Literal["checkpoint", "engine"] = "checkpoint"
    split: Literal["dev", "test"] = "dev"
    """`test` is scored: few a task, each one public."""
    partition: Literal["participant", "reference"] = "participant"
    checkpoint: Address
    engine: Address | None = None
    """Folder with `launch.sh`, on the engine track."""
    declared_precision: Annotated[str, Field(pattern=r"^W[\d.]+A[\d.]+KV[\d.]+$")] | None = None
    method: Text
    created_at: datetime

    @model_validator(mode="after")
    def _engine_track_needs_an_engine(self) -> Submission:
        if (self.track == "engine") != (self.engine is not None):
            raise ValueError("the engine track needs the address of an engine, the checkpoint track has none")
        return self


def new_id(*parts: str) -> str:
    """Sixteen hex digits: derived from `parts` where given (an idempotency key), random otherwise."""
    if parts:
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return secrets.token_hex(8)


def now() -> datetime:
    """The present, UTC, to the second, as records print it."""
    return datetime.now(UTC).replace(microsecond=0)


class State(_Frozen):
    """Where a submission stands."""

    status: Literal["waiting", "running", "done", "rejected", "failed", "cancelled"]
    stage: str | None = None
    """The stage being worked on, while running."""


def state_of(finished: Collection[str], *, leased: bool, cancelled: bool, verdict: str | None) -> State:
    """The state that follows from the objects in the ledger.

    finished: names of the stages whose object exists. leased: a live lease exists. verdict: the final record's
    status (`done`, `rejected`, `failed`), None while there is no record.
    """
    if verdict is not None:
        return State.model_validate({"status": verdict})
    if cancelled:
        return State(status="cancelled")
    if not leased:
        return State(status="waiting")
    return State(status="running", stage=next((stage for stage in IN_TIME if stage not in finished), "score"))
