"""What a scorer is: a function from cases to verdicts that never raises on an answer and is bounded in time.

A case is one answer beside its item's target. Scorers take many cases at once, so that one which needs a
process starts it once and one which may use several cores does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

__all__ = ["MAX_ANSWER_CHARS", "Case", "Outcome", "Scorer", "case_by_case"]

MAX_ANSWER_CHARS = 200_000
"""Characters of an answer that are looked at; the rest cannot make it right."""

TargetT = TypeVar("TargetT")


class Outcome(StrEnum):
    """How an answer was judged."""

    RIGHT = "right"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    """Nothing in the text could be read as an answer."""
    TIMED_OUT = "timed_out"
    """Judging it took longer than the scorer's limit; counts as wrong."""
    CRASHED = "crashed"
    """The answer's code ended its process, or went past a limit of memory or output; counts as wrong."""


@dataclass(frozen=True, slots=True)
class Case(Generic[TargetT]):
    """One answer to judge."""

    target: TargetT = field(repr=False)
    text: str = field(repr=False)


Scorer: TypeAlias = Callable[[Sequence[Case[TargetT]]], list[Outcome]]
"""Judges answers, one outcome a case and in their order."""


def case_by_case(judge: Callable[[TargetT, str], Outcome]) -> Scorer[TargetT]:
    """A scorer of a function that judges one answer."""

    def score(cases: Sequence[Case[TargetT]]) -> list[Outcome]:
        return [judge(case.target, case.text) for case in cases]

    return score
