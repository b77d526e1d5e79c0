"""What an evaluation cost: the hours that its pod was held, as far as they count."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from lowbit_ray.lease import attempts
from lowbit_ray.stages.context import Evaluation, StepTime, step_times

__all__ = ["gpu_hours"]

POD = re.compile(r"-[0-9a-f]{16}$")
"""What names of steps end in that hold for one pod alone."""


def gpu_hours(evaluation: Evaluation) -> float:
    """GPU-hours that count: attempts that ended by the participant's doing, and what finished in any other.

    A fault of our own costs nothing, so of an attempt that ended by one only the steps that the record rests on
    are counted: where both sides were timed again on another pod, not those on the first one as well. The attempt at
    work is not stored yet; its lease says what it has used so far.
    """
    ledger, tenure = evaluation.ledger, evaluation.tenure
    past = attempts(ledger, evaluation.submission.id)
    counted = [lease for lease in past if not lease.ours] + [tenure.used()]
    numbers = {lease.attempt for lease in counted}
    steps = step_times(ledger, evaluation.submission.id)
    reused = sum(
        step.pod_seconds for step in _last_of_each(steps) if step.attempt not in numbers and step.kept
    )
    gpus = evaluation.task.pod.tensor_parallel
    return (sum(lease.pod_seconds * lease.gpus for lease in counted) + reused * gpus) / 3600


def _last_of_each(steps: Sequence[StepTime]) -> Collection[StepTime]:
    """Of steps that were done on several pods the last ones, which the record rests on; `steps` in order of time."""
    return {POD.sub("", step.name): step for step in steps}.values()
