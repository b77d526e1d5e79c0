"""Reading an answer's text: what stands after the reasoning, its code, its last number."""

from __future__ import annotations

import re
from fractions import Fraction

from lowbit_ray.measure.accuracy.scorers.verdict import MAX_ANSWER_CHARS

__all__ = ["code_of", "final_number", "plain_number", "without_reasoning"]

_START_OF_REASONING, _END_OF_REASONING = "<think>", "</think>"
_FENCE = re.compile(r"```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_NUMBER = r"[-−+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?"
_NUMBER_ALONE = re.compile(rf"\s*\$?\s*({_NUMBER})\s*\.?\s*\Z")
_NUMBER_INSIDE = re.compile(rf"(?<![\w.]){_NUMBER}(?![\w])")
_DECLARED = re.compile(rf"(?:answer\s*(?:is|:|=)|####)[\s*$:=]*({_NUMBER})(?![\w])", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s*\{\s*([^{}]*)\}")
_LONGEST_NUMBER = 60
"""Characters; longer runs of digits are no answers, and converting them takes quadratic time."""


def without_reasoning(text: str) -> str:
    """`text` after its last `</think>`, cut to what scorers look at, without blanks at its ends.

    Reasoning that was cut off before its end holds no answer: the empty text.
    """
    _, end, answer = text.rpartition(_END_OF_REASONING)
    if not end and text.lstrip().startswith(_START_OF_REASONING):
        return ""
    return answer[:MAX_ANSWER_CHARS].strip()


def code_of(text: str) -> str:
    """The Python code of an answer: its fenced blocks together, or the whole text where there is none."""
    blocks = [
        body for language, body in _FENCE.findall(text) if language.lower() in ("", "python", "py", "python3")
    ]
    return "\n\n".join(blocks) if blocks else text


def plain_number(text: str) -> Fraction | None:
    """The value of a text that is one number (`12`, `-3.5`, `1,200`, `3/4`, `$7`), else None."""
    match = _NUMBER_ALONE.match(text)
    return _value(match.group(1)) if match else None


def final_number(text: str) -> Fraction | None:
    """The number an answer ends on: boxed, else declared (`the answer is 12`, `#### 12`), else the last."""
    boxed = _BOXED.findall(text)
    if boxed:
        return plain_number(boxed[-1])
    declared = _DECLARED.findall(text)
    if declared:
        return _value(declared[-1])
    inside = _NUMBER_INSIDE.findall(text)
    return _value(inside[-1]) if inside else None


def _value(number: str) -> Fraction | None:
    if len(number) > _LONGEST_NUMBER:
        return None
    try:
        return Fraction(number.replace(",", "").replace("−", "-"))
    except (ValueError, ZeroDivisionError):
        return None
