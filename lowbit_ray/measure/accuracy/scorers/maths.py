"""Maths equality: the value an answer ends on, against the target's.

Two plain numbers are compared exactly (as fractions) right here. What that does not find equal is asked of
math-verify, which reads LaTeX and expressions, in a process of its own with limits of time and memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from lowbit_ray.errors import InfraError
from lowbit_ray.measure.accuracy.items import MathsTarget
from lowbit_ray.measure.accuracy.scorers.answer_text import final_number, plain_number, without_reasoning
from lowbit_ray.measure.accuracy.scorers.child import run_child
from lowbit_ray.measure.accuracy.scorers.maths_worker import PAIR_CPU_S
from lowbit_ray.measure.accuracy.scorers.verdict import Case, Outcome

__all__ = ["score_maths"]

START_S = 60.0
"""Longest time until the worker has imported sympy on a busy machine."""
_ENDING_CHARS = 4000
"""Characters at an answer's end that math-verify reads."""


def score_maths(cases: Sequence[Case[MathsTarget]]) -> list[Outcome]:
    """Judges the cases; an answer that takes math-verify more than its seconds is TIMED_OUT.

    Raises InfraError where the worker cannot run at all.
    """
    outcomes = [_at_once(case) for case in cases]
    undecided = [index for index, outcome in enumerate(outcomes) if outcome is None]
    while undecided:
        decided = _ask_math_verify([cases[index] for index in undecided])
        for index, outcome in zip(undecided, decided, strict=False):
            outcomes[index] = outcome
        undecided = undecided[len(decided) :]
    return [outcome for outcome in outcomes if outcome is not None]


def _at_once(case: Case[MathsTarget]) -> Outcome | None:
    """The outcome where it needs no algebra."""
    answer = without_reasoning(case.text)
    if not answer:
        return Outcome.NO_ANSWER
    wanted = plain_number(case.target.answer)
    given = final_number(answer)
    return Outcome.RIGHT if wanted is not None and wanted == given else None


def _ask_math_verify(cases: Sequence[Case[MathsTarget]]) -> list[Outcome]:
    """Outcomes of the first cases, at least one; the worker ends at a case that exceeds its limits."""
    pairs = [[case.target.answer, without_reasoning(case.text)[-_ENDING_CHARS:]] for case in cases]
    run = run_child(
        [sys.executable, "-m", "lowbit_ray.measure.accuracy.scorers.maths_worker"],
        json.dumps(pairs).encode(),
        wall_s=START_S + 2 * PAIR_CPU_S * len(pairs),
        max_bytes=2 * len(pairs),
        environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
    )
    outcomes = [Outcome.RIGHT if line == b"1" else Outcome.WRONG for line in run.output.splitlines()]
    if len(outcomes) == len(cases):
        return outcomes
    if not outcomes and run.returncode > 0:
        raise InfraError(
            "the maths scorer's worker does not start",
            where="lowbit_ray.measure.accuracy.scorers.maths_worker",
            found=f"exit status {run.returncode}",
            remedy="Install the extra: pip install 'lowbit-ray[cluster]'.",
        )
    return [*outcomes, Outcome.TIMED_OUT]
