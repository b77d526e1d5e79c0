"""Build: the candidate and its source as sealed folders, before any of the submission's code runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lowbit_ray.checkpoint.fetch import Unsafe, seal
from lowbit_ray.checkpoint.packaged import make_anchor
from lowbit_ray.checkpoint.sealed import Sealed
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.context import Evaluation

__all__ = ["Built", "build"]


class Built(_Frozen):
    """What the later stages serve."""

    source: Sealed
    candidate: Sealed
    engine: Sealed | None
    """Folder with launch.sh, on the engine track."""


def build(evaluation: Evaluation) -> Built:
    """Fetches and seals; errors as `fetch.seal`. A folder sealed by an earlier attempt is used as it is."""
    return evaluation.step("build", Built, lambda: _build(evaluation))


def _build(evaluation: Evaluation) -> Built:
    submission, task = evaluation.submission, evaluation.task
    limit = task.limits.checkpoint_gib
    kept: Unsafe = "refuse" if submission.track == "checkpoint" else "keep"
    engine = submission.engine
    return Built(
        source=seal_source(evaluation.settings.cache, task.id, _source_address(evaluation), limit),
        candidate=seal(
            str(submission.checkpoint), evaluation.folder("checkpoint"), limit_gib=limit, unsafe=kept
        ),
        engine=engine and seal(str(engine), evaluation.folder("engine"), limit_gib=limit, unsafe="keep"),
    )


def seal_source(cache: Path, task: str, address: Callable[[], str], limit_gib: float) -> Sealed:
    """The sealed source of a task, fetched once a cache."""
    return seal(address(), cache / "sources" / task, limit_gib=limit_gib, unsafe="skip")


def _source_address(evaluation: Evaluation) -> Callable[[], str]:
    """Where the source comes from; a locally made one is made on demand."""
    anchor = evaluation.task.anchor

    def address() -> str:
        if anchor.package is not None:
            return str(make_anchor(anchor.package, evaluation.settings.cache / "made" / evaluation.task.id))
        return anchor.path or f"{anchor.repository}@{anchor.revision}"

    return address
