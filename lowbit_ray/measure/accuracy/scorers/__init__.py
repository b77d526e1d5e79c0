"""Scorers of answers, one file each: maths, choice, unit tests, instructions, containment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowbit_ray.measure.accuracy.scorers.choice import score_choices
from lowbit_ray.measure.accuracy.scorers.containment import score_containment
from lowbit_ray.measure.accuracy.scorers.instructions import score_instructions
from lowbit_ray.measure.accuracy.scorers.maths import score_maths
from lowbit_ray.measure.accuracy.scorers.unit_tests import score_unit_tests
from lowbit_ray.measure.accuracy.scorers.verdict import Case, Outcome, Scorer

__all__ = ["SCORERS", "Case", "Outcome", "Scorer", "judge"]

SCORERS: dict[str, Scorer[Any]] = {
    "choice": score_choices,
    "containment": score_containment,
    "instructions": score_instructions,
    "maths": score_maths,
    "unit_tests": score_unit_tests,
}


def judge(cases: Sequence[Case[Any]]) -> list[Outcome]:
    """Outcomes of cases of any kind, in their order; each scorer gets all of its own at once."""
    outcomes: dict[int, Outcome] = {}
    for name, scorer in SCORERS.items():
        own = [index for index, case in enumerate(cases) if case.target.scorer == name]
        if own:
            outcomes.update(zip(own, scorer([cases[index] for index in own]), strict=True))
    return [outcomes[index] for index in range(len(cases))]
