"""Build: the candidate and its source as sealed folders, before any of the submission's code runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from lowbit_ray.checkpoint.arrived import Told
from lowbit_ray.checkpoint.fetch import Unsafe, seal
from lowbit_ray.checkpoint.packaged import make_anchor
from lowbit_ray.checkpoint.sealed import Sealed, load_sealed
from lowbit_ray.errors import CheckpointError, ConfigError, SubmissionError
from lowbit_ray.progress import Watch
from lowbit_ray.rules import _Frozen
from lowbit_ray.settings import Settings
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.room import make_room
from lowbit_ray.submission import Address
from lowbit_ray.tasks import Task

__all__ = ["Built", "build", "our_source", "seal_engine", "source_address"]


LAUNCHER = "launch.sh"


class Built(_Frozen):
    """What the later stages serve."""

    source: Sealed
    candidate: Sealed
    engine: Sealed | None
    """Folder with launch.sh, on the engine track."""


def build(evaluation: Evaluation) -> Built:
    """Fetches and seals; errors as `fetch.seal`. A folder sealed by an earlier attempt is used as it is.

    One that is gone with its cache is fetched again; CheckpointError where it holds something else by now.
    """
    built = evaluation.step("build", Built, lambda: _build(evaluation))
    parts = [part for part in (built.source, built.candidate, built.engine) if part is not None]
    if all(load_sealed(part.path) is not None for part in parts):
        return built
    again = _build(evaluation)
    if built.candidate.digest != again.candidate.digest:
        raise CheckpointError(
            "the checkpoint has changed since it was first fetched",
            where=str(evaluation.submission.checkpoint),
            found=again.candidate.digest[:16],
            expected=built.candidate.digest[:16],
            remedy="Submit what it holds now as a submission of its own.",
        )
    return again


def _build(evaluation: Evaluation) -> Built:
    submission, task = evaluation.submission, evaluation.task
    limit = task.limits.checkpoint_gib
    kept: Unsafe = "refuse" if submission.track == "checkpoint" else "keep"
    watch, room = evaluation.watch, partial(make_room, evaluation.settings, evaluation.ledger)
    watch.progress("getting the task's source", 0, 0)
    source = seal_source(
        evaluation.settings.cache,
        task.id,
        lambda: source_address(task, evaluation.settings),
        limit,
        _mebibytes(watch, "fetching the task's source, MiB"),
        room,
    )
    candidate = seal(
        str(submission.checkpoint),
        evaluation.folder("checkpoint"),
        limit_gib=limit,
        unsafe=kept,
        told=_mebibytes(watch, "fetching the candidate, MiB"),
        room=room,
    )
    engine = submission.engine and seal_engine(submission.engine, evaluation.folder("engine"), limit)
    return Built(source=source, candidate=candidate, engine=engine)


def _mebibytes(watch: Watch, what: str) -> Told:
    return lambda done, total: watch.progress(what, done >> 20, total >> 20)


def seal_engine(address: Address, folder: Path, limit_gib: float) -> Sealed:
    """A participant's engine as a read-only folder whose programs can be run; errors as `fetch.seal`.

    Hubs and buckets keep no mode of a file, so that all of them may be run.
    """
    engine = seal(str(address), folder, limit_gib=limit_gib, unsafe="keep")
    if not any(file.path == LAUNCHER for file in engine.files):
        raise SubmissionError(
            "the engine's folder has no launch.sh",
            where="engine",
            found=", ".join(file.path for file in engine.files[:5]),
            expected=LAUNCHER,
            remedy="See docs/engine-track.md for the smallest that works.",
        )
    for file in engine.files:
        (engine.path / file.path).chmod(0o555)
    return engine


def seal_source(
    cache: Path,
    task: str,
    address: Callable[[], str],
    limit_gib: float,
    told: Told | None = None,
    room: Callable[[int], object] | None = None,
) -> Sealed:
    """The sealed source of a task, fetched once a cache; errors as `fetch.seal`, but never a participant's."""
    folder = cache / "sources" / task
    with our_source(task):
        return seal(address(), folder, limit_gib=limit_gib, unsafe="skip", told=told, room=room)


@contextlib.contextmanager
def our_source(task: str) -> Iterator[None]:
    """What is wrong with a task's source is the organizers' to mend: ConfigError."""
    try:
        yield
    except SubmissionError as error:
        raise ConfigError(
            f"the source of the task cannot be used: {error.summary}",
            where=": ".join(filter(None, (task, error.where))),
            found=error.found,
            expected=error.expected,
            remedy=error.remedy or "Look at `anchor` in the task's file; a gated source needs HF_TOKEN.",
        ) from error


def source_address(task: Task, settings: Settings) -> str:
    """Where the source comes from; a locally made one is made on demand."""
    anchor = task.anchor
    if anchor.package is not None:
        return str(make_anchor(anchor.package, settings.cache / "made" / task.id))
    return anchor.path or f"{anchor.repository}@{anchor.revision}"
