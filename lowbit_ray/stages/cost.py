"""What an evaluation cost: the hours that its pod was held, as far as they count."""

from __future__ import annotations

from lowbit_ray.lease import attempts
from lowbit_ray.stages.context import Evaluation, step_times

__all__ = ["gpu_hours"]


def gpu_hours(evaluation: Evaluation) -> float:
    """GPU-hours that count: attempts that ended by the participant's doing, and what finished in any other.

    A fault of our own costs nothing, so of an attempt that ended by one only the steps that the record rests on
    are counted. The attempt at work is not stored yet; its lease says what it has used so far.
    """
    ledger, tenure = evaluation.ledger, evaluation.tenure
    past = attempts(ledger, evaluation.submission.id)
    counted = [lease for lease in past if not lease.ours] + [tenure.used()]
    numbers = {lease.attempt for lease in counted}
    steps = step_times(ledger, evaluation.submission.id)
    reused = sum(step.pod_seconds for step in steps if step.kept and step.attempt not in numbers)
    gpus = evaluation.task.pod.tensor_parallel
    return (sum(lease.pod_seconds * lease.gpus for lease in counted) + reused * gpus) / 3600
