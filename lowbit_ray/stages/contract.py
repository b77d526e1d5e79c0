"""Contract: is the candidate the source, only stored in fewer bits? No pod is held for it."""

from __future__ import annotations

from lowbit_ray.checkpoint.contract import Contract, check_contract
from lowbit_ray.errors import ContractError
from lowbit_ray.stages.build import Built
from lowbit_ray.stages.context import Evaluation

__all__ = ["contract"]


def contract(evaluation: Evaluation, built: Built) -> Contract:
    """The verdict, stored with all of its findings.

    Raises ContractError, with the first finding that breaks it, where it is broken: the submission scores 0.
    """
    verdict = evaluation.step(
        "contract",
        Contract,
        lambda: check_contract(
            built.source.path, built.candidate.path, evaluation.rules, evaluation.submission.track
        ),
    )
    if not verdict.kept:
        raise ContractError(verdict.reason or "the contract is broken")
    return verdict
