"""Reading an answer's text: what stands after the reasoning, its code, its last number."""

from __future__ import annotations

import re
from collections import deque
from fractions import Fraction

from lowbit_ray.measure.accuracy.scorers.verdict import MAX_ANSWER_CHARS

__all__ = ["code_of", "final_number", "plain_number", "without_reasoning"]

_START_OF_REASONING, _END_OF_REASONING = "<think>", "</think>"
# Of neighbours that match the same characters the first is possessive (`*+`): an answer may hold a hundred thousand
# blanks, and going back over them takes the square of that.
_FENCE = re.compile(r"```[ \t]*+([\w+-]*+)[^\n]*+\n(.*?)(?:\n[ \t]*+```|\Z)", re.DOTALL)
_NUMBER = r"[-−+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?"
_NUMBER_ALONE = re.compile(rf"\s*+\$?\s*+({_NUMBER})\s*+\.?\s*+\Z")
_NUMBER_INSIDE = re.compile(rf"(?<![\w.])({_NUMBER})(?!\w)")
_DECLARED = re.compile(rf"(?:answer\s*+(?:is|:|=)|####)[\s*$:=]*+({_NUMBER})(?!\w)", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s*+\{\s*+([^{}]*+)\}")
_FUNCTIONS = "sqrt|[dt]?frac|binom|cdot|times|div|pm|mp|over|pi|ln|log|exp|sin|cos|tan|left|infty"
_GOES_ON = re.compile(
    rf"\{{|\s*+(?:[\^/+=×·÷]|\*\s*+[\w(\\]|\\(?:{_FUNCTIONS})(?![a-z]))|[-−]\d|\s++[-−]\s++[\w(\\]"
)
r"""After a number that is part of an expression: `4\sqrt{2}`, `2^{10}`, `12 + 5 = 17`."""
_COMES_FROM = re.compile(r"(?:[{^_/+×·÷(]|[\w)}]\s*+\*|[\w)}]\s*+[-−]|\\(?:cdot|times|div|pm|mp))\s*+\Z")
r"""Before one: `\frac{3}{4}`, `3 / 4`, `2 * 6`, `x - 12`."""
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
    """The number an answer ends on: boxed, else declared (`the answer is 12`, `#### 12`), else the last.

    None where that is no number by itself but part of an expression, which has another value.
    """
    box = text.rfind("\\boxed")
    if box >= 0:
        boxed = _BOXED.match(text, box)
        return plain_number(boxed[1]) if boxed else None
    if declared := _last(_DECLARED, text):
        return None if _GOES_ON.match(text, declared.end()) else _value(declared[1])
    inside = _last(_NUMBER_INSIDE, text)
    if inside is None or _GOES_ON.match(text, inside.end()):
        return None
    before = text[max(0, inside.start() - _LONGEST_NUMBER) : inside.start()]
    return None if _COMES_FROM.search(before) else _value(inside[1])


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = deque(pattern.finditer(text), maxlen=1)
    return matches[0] if matches else None


def _value(number: str) -> Fraction | None:
    if len(number) > _LONGEST_NUMBER:
        return None
    try:
        return Fraction(number.replace(",", "").replace("−", "-"))
    except (ValueError, ZeroDivisionError):
        return None
