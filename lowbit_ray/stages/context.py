"""What every stage is given: the submission, its task, and steps that are done once and survive a restart.

A step is kept with the digest of what it was measured by: workloads, flags, the seed of the hidden prompts, our own
release. Where that has changed since, the step is done again, so that no record is made of two sorts of measurements.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lowbit_ray import __version__
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
MEASURED = {"anchor", "engine", "workloads", "repeats", "prompts", "kl", "perplexity", "accuracy", "audit"}
"""Fields of a task that measurements depend on."""


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
    plan: str = ""
    """Digest of what it was measured by; empty in objects of before it was noted."""


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
    answered_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that each side has taken for its answers."""

    @property
    def plan(self) -> str:
        """Digest of all that a measurement goes by, beside silicon and releases, which a pod's name stands for."""
        rules, task = self.rules, self.task
        parts = (
            rules.model_dump(mode="json", include={"engine_flags", "workloads", "vllm"}),
            rules.engine.model_dump(
                mode="json", include={"budget_factor", "context_gib", "timed_output_audit"}
            ),
            (task.timed_repeats(rules), task.pooled_evaluations(rules), task.pod.tensor_parallel),
            task.model_dump(mode="json", include=MEASURED),
            derive_seed(self.settings.secret_bytes(), "plan").hex(),
            __version__,
        )
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def step(self, name: str, kind: type[M], compute: Callable[[], M]) -> M:
        """The value of a step: from the ledger where an earlier attempt finished it, computed and stored otherwise.

        Raises Cancelled before a step of a cancelled submission, LeaseHeld where the lease was lost, and what
        `compute` raises.
        """
        key = self._key(name)
        entry = self.ledger.read(key)
        if entry is not None and (kept := _parse(entry.data, kind, key, self.plan)) is not None:
            self.watch.end(name, kept[1].seconds, reused=True)
            return kept[0]
        self._check_still_wanted()
        timed = self._begin(name)
        value = compute()
        self.check_lease()
        took = timed()
        stored = _Stored(time=took, value=value.model_dump(mode="json"), plan=self.plan)
        self._store(key, stored.model_dump_json().encode(), None if entry is None else entry.version)
        self.watch.end(name, took.seconds, reused=False)
        return value

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """A stretch of time that has no value of its own to keep, and is spent again where it is needed again.

        It stands among the steps; of several of one name the first does. Errors as `step`.
        """
        self._check_still_wanted()
        timed = self._begin(name)
        yield
        self.check_lease()
        took = timed().model_copy(update={"kept": False})
        self.ledger.create(self._key(name), _Stored(time=took, value={}).model_dump_json().encode())
        self.watch.end(name, took.seconds, reused=False)

    def finished(self, name: str, kind: type[M]) -> M | None:
        """The value of a step that an attempt has finished, None otherwise."""
        entry = self.ledger.read(self._key(name))
        kept = None if entry is None else _parse(entry.data, kind, self._key(name), self.plan)
        return None if kept is None else kept[0]

    def waiting(self, why: str, *, what: str = "a pod") -> None:
        """Tells what is waited for; raises Cancelled or LeaseHeld where it is not worth waiting any more."""
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

    def _key(self, name: str) -> str:
        return f"submissions/{self.submission.id}/stages/{name}.json"

    def check_lease(self) -> None:
        """LeaseHeld where the lease was lost: whoever has it does this work now."""
        if self.tenure.lost.is_set():
            raise LeaseHeld("the lease was lost to another process", where=self.submission.id)

    def _check_still_wanted(self) -> None:
        self.check_lease()
        if self.ledger.read(f"submissions/{self.submission.id}/cancelled.json") is not None:
            raise Cancelled("the submission was cancelled", where=self.submission.id)

    def _store(self, key: str, data: bytes, version: str | None) -> None:
        """Keeps a step, in the place of `version` where there was one of another plan; LeaseHeld where another process
        has kept its own meanwhile, which it only does with the lease."""
        kept = self.ledger.create(key, data) if version is None else self.ledger.swap(key, data, version)
        if not kept:
            entry = self.ledger.read(key)
            if entry is None or entry.data != data:  # a write whose answer was lost meets itself
                raise LeaseHeld("another process has done this step meanwhile", where=key)


def _parse(data: bytes, kind: type[M], key: str, plan: str) -> tuple[M, StepTime] | None:
    """Value and time of a stored step; None where it was measured by another plan."""
    try:
        stored = _Stored.model_validate_json(data)
        return (kind.model_validate(stored.value, strict=False), stored.time) if stored.plan == plan else None
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
