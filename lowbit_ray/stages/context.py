"""What every stage is given: the submission, its task, and steps that are done once and survive a restart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lowbit_ray.engines.isolation import Isolation
from lowbit_ray.errors import LedgerError, LowbitError
from lowbit_ray.lease import LeaseHeld, Tenure
from lowbit_ray.ledger import Ledger
from lowbit_ray.measure.prompts import derive_seed
from lowbit_ray.progress import Watch
from lowbit_ray.rules import Rules, _Frozen
from lowbit_ray.settings import Settings
from lowbit_ray.submission import Submission, now
from lowbit_ray.tasks import Task

__all__ = ["Cancelled", "Evaluation", "StepTime", "step_times"]

M = TypeVar("M", bound=BaseModel)


class Cancelled(LowbitError):
    """The participant or an organizer cancelled the submission."""


class StepTime(_Frozen):
    """When a step ran and for how long."""

    name: str
    started_at: datetime
    seconds: float
    pod_seconds: float
    """Of it, with the pod held."""
    busy_seconds: float = 0.0
    """Of those, with an engine answering what it was asked."""
    attempt: int
    """Which attempt did it."""
    kept: bool = True
    """Whether there is a value of it that the record rests on; False for a stretch of time alone."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    time: StepTime
    value: dict[str, object]


@dataclass(slots=True)
class Evaluation:
    """One evaluation at work."""

    submission: Submission
    task: Task
    rules: Rules
    ledger: Ledger
    settings: Settings
    tenure: Tenure
    watch: Watch
    isolation: Isolation | None = None
    """What the candidate's engine is shut in by, on the engine track; None until it has been timed."""
    held_s: Callable[[], float] = field(default=lambda: 0.0)
    """Seconds that the pod has been held so far; 0 without a pod."""
    busy_s: Callable[[], float] = field(default=lambda: 0.0)
    """Seconds of them in which an engine was answering."""

    def step(self, name: str, kind: type[M], compute: Callable[[], M]) -> M:
        """The value of a step: from the ledger where an earlier attempt finished it, computed and stored otherwise.

        Raises Cancelled before a step of a cancelled submission, LeaseHeld where the lease was lost, and what
        `compute` raises.
        """
        entry = self.ledger.read(self._key(name))
        if entry is not None:
            value, took = _parse(entry.data, kind, self._key(name))
            self.watch.end(name, took.seconds, reused=True)
            return value
        self._check_still_wanted()
        timed = self._begin(name)
        value = compute()
        self._end(timed(), value.model_dump(mode="json"))
        return value

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """A stretch of time that has no value of its own to keep, and is spent again where it is needed again.

        It stands among the steps; of several of one name the first does. Errors as `step`.
        """
        self._check_still_wanted()
        timed = self._begin(name)
        yield
        self._end(timed().model_copy(update={"kept": False}), {})

    def finished(self, name: str, kind: type[M]) -> M | None:
        """The value of a step that an attempt has finished, None otherwise."""
        entry = self.ledger.read(self._key(name))
        return None if entry is None else _parse(entry.data, kind, self._key(name))[0]

    def waiting(self, why: str, *, what: str = "a pod") -> None:
        """Told while something is waited for; raises Cancelled or LeaseHeld where nobody waits for it any more."""
        self._check_still_wanted()
        self.watch.progress(f"waiting for {what}: {why}", 0, 0)

    def seed(self, *labels: str) -> bytes:
        """A secret seed for one purpose of this submission."""
        return derive_seed(self.settings.secret_bytes(), self.submission.id, *labels)

    def task_seed(self, *labels: str) -> bytes:
        """A secret seed for one purpose that all submissions of the task share."""
        return derive_seed(self.settings.secret_bytes(), self.task.id, *labels)

    def folder(self, *parts: str) -> Path:
        """A folder of this submission in the cache."""
        return self.settings.cache.joinpath("submissions", self.submission.id, *parts)

    def _begin(self, name: str) -> Callable[[], StepTime]:
        """Tells that it begins; what is returned says how long it took."""
        self.watch.begin(name)
        started_at, started = now(), time.monotonic()
        held, busy = self.held_s(), self.busy_s()
        return lambda: StepTime(
            name=name,
            started_at=started_at,
            seconds=time.monotonic() - started,
            pod_seconds=self.held_s() - held,
            busy_seconds=max(0.0, self.busy_s() - busy),
            attempt=self.tenure.lease.attempt,
        )

    def _end(self, took: StepTime, value: dict[str, object]) -> None:
        if self.tenure.lost.is_set():
            raise LeaseHeld("the lease was lost to another process", where=self.submission.id)
        self.ledger.create(self._key(took.name), _Stored(time=took, value=value).model_dump_json().encode())
        self.watch.end(took.name, took.seconds, reused=False)

    def _key(self, name: str) -> str:
        return f"submissions/{self.submission.id}/stages/{name}.json"

    def _check_still_wanted(self) -> None:
        if self.tenure.lost.is_set():
            raise LeaseHeld("the lease was lost to another process", where=self.submission.id)
        if self.ledger.read(f"submissions/{self.submission.id}/cancelled.json") is not None:
            raise Cancelled("the submission was cancelled", where=self.submission.id)


def _parse(data: bytes, kind: type[M], key: str) -> tuple[M, StepTime]:
    try:
        stored = _Stored.model_validate_json(data)
        return kind.model_validate(stored.value, strict=False), stored.time
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise LedgerError(
            "a stored step is not of this version",
            where=f"{key}: {'.'.join(map(str, first['loc']))}",
            found=first["msg"],
            remedy="Remove the object: the step is then done again.",
        ) from None


def step_times(ledger: Ledger, submission: str) -> Sequence[StepTime]:
    """When each finished step ran, in order of time."""
    keys = ledger.keys(f"submissions/{submission}/stages/")
    entries = (ledger.read(key) for key in keys)
    times = [_Stored.model_validate_json(entry.data).time for entry in entries if entry is not None]
    return sorted(times, key=lambda step: (step.started_at, step.name))
