"""Contract: is the candidate the source, only stored in fewer bits? No pod is held for it."""

from __future__ import annotations

from lowbit_ray.checkpoint.contract import Contract, check_contract
from lowbit_ray.checkpoint.reading import read_checkpoint
from lowbit_ray.errors import ContractError
from lowbit_ray.stages.build import Built, our_source
from lowbit_ray.stages.context import Evaluation

__all__ = ["contract"]


def contract(evaluation: Evaluation, built: Built) -> Contract:
    """The verdict, stored with all of its findings.

    Raises ContractError, with the first finding that breaks it, where it is broken: the submission scores 0.
    """
    verdict = evaluation.step("contract", Contract, lambda: _check(evaluation, built))
    if not verdict.kept:
        raise _error(verdict)
    return verdict


def _check(evaluation: Evaluation, built: Built) -> Contract:
    with our_source(evaluation.task.id):
        read_checkpoint(built.source.path)
    return check_contract(
        built.source.path, built.candidate.path, evaluation.rules, evaluation.submission.track
    )


def _error(verdict: Contract) -> ContractError:
    """The first finding that breaks the contract, and how many do."""
    first, *others = verdict.broken
    count = f" (first of {len(others) + 1} findings)" if others else ""
    return ContractError(
        first.summary + count,
        where=first.where,
        found=first.found or None,
        expected=first.expected or None,
        remedy=first.remedy,
    )
