"""Containment: a text that must stand in the answer as whole words, letter case aside."""

from __future__ import annotations

import re

from lowbit_ray.measure.accuracy.items import ContainmentTarget
from lowbit_ray.measure.accuracy.scorers.answer_text import without_reasoning
from lowbit_ray.measure.accuracy.scorers.verdict import Outcome, case_by_case

__all__ = ["judge_containment", "score_containment"]


def judge_containment(target: ContainmentTarget, text: str) -> Outcome:
    """RIGHT where one of `any_of` stands in the answer and none of `none_of` does."""
    answer = _folded(without_reasoning(text))
    if not answer:
        return Outcome.NO_ANSWER
    held = any(_stands_in(wanted, answer) for wanted in target.any_of)
    spoiled = any(_stands_in(distractor, answer) for distractor in target.none_of)
    return Outcome.RIGHT if held and not spoiled else Outcome.WRONG


score_containment = case_by_case(judge_containment)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _stands_in(wanted: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(_folded(wanted))}(?!\w)", answer) is not None
