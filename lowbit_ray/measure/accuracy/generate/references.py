"""Right versions of the code domain's harder functions, for the expected values of its checks."""

from __future__ import annotations

import math

__all__ = [
    "common_subsequence",
    "in_base",
    "is_balanced",
    "is_prime",
    "merged_intervals",
    "roman_numeral",
    "run_lengths",
    "shifted",
]


def is_prime(n: int) -> bool:
    """Trial division."""
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def is_balanced(text: str) -> bool:
    """Removes pairs until none is left."""
    for _ in text:
        text = text.replace("()", "").replace("[]", "").replace("{}", "")
    return not text


def run_lengths(text: str) -> list[tuple[str, int]]:
    """(letter, count) of each run of equal letters."""
    runs: list[tuple[str, int]] = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        else:
            runs.append((letter, 1))
    return runs


def merged_intervals(intervals: list[list[int]]) -> list[list[int]]:
    """Sorted, with those that overlap or touch as one."""
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def in_base(n: int, base: int) -> str:
    """n >= 0 in a base up to 10."""
    digits = ""
    while n:
        n, digit = divmod(n, base)
        digits = str(digit) + digits
    return digits or "0"


def roman_numeral(n: int) -> str:
    """1 to 49."""
    text = ""
    for value, sign in ((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        text, n = text + sign * (n // value), n % value
    return text


def shifted(word: str, k: int) -> str:
    """Each lower-case letter moved k places on, z to a."""
    return "".join(chr((ord(letter) - 97 + k) % 26 + 97) for letter in word)


def common_subsequence(left: str, right: str) -> int:
    """Length of the longest common subsequence."""
    lengths = [0] * (len(right) + 1)
    for a in left:
        previous = 0
        for index, b in enumerate(right, 1):
            previous, lengths[index] = (
                lengths[index],
                previous + 1 if a == b else max(lengths[index], lengths[index - 1]),
            )
    return lengths[-1]
