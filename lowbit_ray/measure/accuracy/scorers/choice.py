"""Multiple choice: the letter an answer picks, or the option whose text it gives.

Read in this order: a letter the answer starts with (`B`, `B.`, `(B) Paris`), a declared one (`the answer is
B`), the only letter that stands by itself as `(B)` or `B)`, the only option whose text occurs. An answer that
names several options equally is no answer.
"""

from __future__ import annotations

import re

from lowbit_ray.measure.accuracy.items import ChoiceTarget
from lowbit_ray.measure.accuracy.scorers.answer_text import without_reasoning
from lowbit_ray.measure.accuracy.scorers.verdict import Outcome, case_by_case

__all__ = ["judge_choice", "picked_letter", "score_choices"]

# "A city" and "I think" begin with a word, "B Paris" with a letter
_START = re.compile(r"[\s*_`(\[\"']*(?:([A-J])(?:[*_`)\]\"'.:,;\n]|\s*\Z)|([B-HJ])\s)")
# possessive, as blanks may be many; "the answer is a city" picks no option, "the answer is a" does
_DECLARED = re.compile(
    r"(?:answer|option|choice)\s*+(?:is|:|=)?\s*+(?:option\s*+)?[*_`(\[\"']*+"
    r"((?-i:[A-J])|[b-hj]|[ai](?=[*_`)\]\"'.:,;\n]|\s*+\Z))(?![\w'])",
    re.IGNORECASE,
)
_ALONE = re.compile(r"(?<![\w'])\(?([A-J])\)")


def picked_letter(text: str, options: tuple[str, ...]) -> str | None:
    """The letter of the option that `text` picks, or None."""
    letters = "ABCDEFGHIJ"[: len(options)]
    start = _START.match(text)
    if start and (letter := start.group(1) or start.group(2)) in letters:
        return str(letter)
    for pattern in (_DECLARED, _ALONE):
        found: set[str] = {letter.upper() for letter in pattern.findall(text)} & set(letters)
        if len(found) == 1:
            return found.pop()
    named = [letter for letter, option in zip(letters, options, strict=True) if _occurs(option, text)]
    return named[0] if len(named) == 1 else None


def judge_choice(target: ChoiceTarget, text: str) -> Outcome:
    """RIGHT where the picked letter is the target's."""
    letter = picked_letter(without_reasoning(text), target.options)
    if letter is None:
        return Outcome.NO_ANSWER
    return Outcome.RIGHT if letter == target.answer else Outcome.WRONG


score_choices = case_by_case(judge_choice)


def _occurs(option: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(option.strip())}(?!\w)", text, re.IGNORECASE) is not None
