"""Verifiable instructions: properties of an answer's form that a program decides (the idea is IFEval's,
Zhou et al. 2023; the constraints and their checks are our own). An answer is right where all of them hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from lowbit_ray.measure.accuracy.items import Constraint, ConstraintKind, InstructionTarget
from lowbit_ray.measure.accuracy.scorers.answer_text import without_reasoning
from lowbit_ray.measure.accuracy.scorers.verdict import Outcome, case_by_case

__all__ = ["CHECKS", "holds", "judge_instructions", "score_instructions"]

_BULLET = re.compile(r"^[ \t]*(?:[-*•+]|\d+[.)])[ \t]+\S", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def _words(answer: str) -> list[str]:
    return _WORD.findall(answer)


def _lines(answer: str) -> list[str]:
    return [line for line in answer.splitlines() if line.strip()]


def _occurrences(text: str, answer: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(text)}(?!\w)", answer, re.IGNORECASE))


def _has_json_keys(answer: str, names: str) -> bool:
    fenced = re.search(r"```(?:json)?\s*+(.*?)```", answer, re.DOTALL)
    try:
        value = json.loads(fenced.group(1) if fenced else answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and set(value) == {name.strip() for name in names.split(",")}


CHECKS: dict[ConstraintKind, Callable[[str, Constraint], bool]] = {
    # bare quotes or a full stop around one word do not break "answer with exactly"
    "exactly": lambda answer, c: answer.strip(" \n.\"'`*").casefold() == c.text.strip(" .").casefold(),
    "contains": lambda answer, c: _occurrences(c.text, answer) >= 1,
    "excludes": lambda answer, c: c.text.casefold() not in answer.casefold(),
    "starts_with": lambda answer, c: answer.casefold().startswith(c.text.casefold()),
    "ends_with": lambda answer, c: answer.casefold().endswith(c.text.casefold()),
    "repeats": lambda answer, c: _occurrences(c.text, answer) == c.count,
    "words_at_most": lambda answer, c: len(_words(answer)) <= c.count,
    "words_at_least": lambda answer, c: len(_words(answer)) >= c.count,
    "words_exactly": lambda answer, c: len(_words(answer)) == c.count,
    "lines_exactly": lambda answer, c: len(_lines(answer)) == c.count,
    "bullets_exactly": lambda answer, c: len(_BULLET.findall(answer)) == c.count,
    "commas_exactly": lambda answer, c: answer.count(",") == c.count,
    "lowercase": lambda answer, c: answer == answer.lower() and any(map(str.isalpha, answer)),
    "uppercase": lambda answer, c: answer == answer.upper() and any(map(str.isalpha, answer)),
    "json_keys": lambda answer, c: _has_json_keys(answer, c.text),
}


def holds(constraint: Constraint, answer: str) -> bool:
    """Whether an answer, without its reasoning, has the property."""
    return CHECKS[constraint.kind](answer, constraint)


def judge_instructions(target: InstructionTarget, text: str) -> Outcome:
    """RIGHT where every constraint holds."""
    answer = without_reasoning(text)
    if not answer:
        return Outcome.NO_ANSWER
    return Outcome.RIGHT if all(holds(c, answer) for c in target.constraints) else Outcome.WRONG


score_instructions = case_by_case(judge_instructions)
