"""The functions that the code domain asks for, by difficulty: description, reference and arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["TEMPLATES", "Template"]


@dataclass(frozen=True, slots=True)
class Template:
    """A function; `{k}` in the name and the description is a drawn integer."""

    name: str
    parameters: str
    returns: str
    """Continues "a function that returns ..."."""
    reference: Callable[..., Any]
    """Called with k, then the arguments."""
    draw: Callable[[Random], tuple[Any, ...]]
    k: tuple[int, int] = (2, 9)


def _number(rng: Random) -> tuple[int]:
    return (rng.randint(-50, 50),)


def _natural(rng: Random) -> tuple[int]:
    return (rng.randint(1, 40),)


def _two_numbers(rng: Random) -> tuple[int, int]:
    return rng.randint(-50, 50), rng.randint(1, 50)


def _numbers(rng: Random) -> tuple[list[int]]:
    return ([rng.randint(-20, 40) for _ in range(rng.randint(3, 8))],)


def _word(rng: Random) -> tuple[str]:
    return ("".join(rng.choice("abcdeilnorstu") for _ in range(rng.randint(3, 8))),)


def _two_words(rng: Random) -> tuple[str, str]:
    return _word(rng)[0], _word(rng)[0]


def _sentence(rng: Random) -> tuple[str]:
    return (" ".join(_word(rng)[0] for _ in range(rng.randint(2, 6))),)


def _matrix(rng: Random) -> tuple[list[list[int]]]:
    rows, columns = rng.randint(2, 4), rng.randint(2, 4)
    return ([[rng.randint(0, 9) for _ in range(columns)] for _ in range(rows)],)


def _brackets(rng: Random) -> tuple[str]:
    balanced = rng.choice(("()", "[()]", "([])()", "{[]()}", "(())"))
    return (balanced if rng.random() < 0.5 else "".join(rng.choice("()[]{}") for _ in range(4)),)


def _runs(rng: Random) -> tuple[str]:
    return ("".join(rng.choice("abc") * rng.randint(1, 4) for _ in range(rng.randint(2, 5))),)


def _intervals(rng: Random) -> tuple[list[list[int]]]:
    starts = [rng.randint(0, 30) for _ in range(rng.randint(3, 6))]
    return ([[start, start + rng.randint(1, 8)] for start in starts],)


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def _balanced(text: str) -> bool:
    for _ in text:
        text = text.replace("()", "").replace("[]", "").replace("{}", "")
    return not text


def _encoded(text: str) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        else:
            runs.append((letter, 1))
    return runs


def _merged(intervals: list[list[int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def _in_base(n: int, base: int) -> str:
    digits = ""
    while n:
        n, digit = divmod(n, base)
        digits = str(digit) + digits
    return digits or "0"


def _roman(n: int) -> str:
    text = ""
    for value, sign in ((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        text, n = text + sign * (n // value), n % value
    return text


def _shifted(word: str, k: int) -> str:
    return "".join(chr((ord(letter) - 97 + k) % 26 + 97) for letter in word)


def _common(left: str, right: str) -> int:
    lengths = [0] * (len(right) + 1)
    for a in left:
        previous = 0
        for index, b in enumerate(right, 1):
            previous, lengths[index] = (
                lengths[index],
                previous + 1 if a == b else max(lengths[index], lengths[index - 1]),
            )
    return lengths[-1]


TEMPLATES: tuple[tuple[Template, ...], ...] = (
    (
        Template("add", "a, b", "the sum of a and b", lambda k, a, b: a + b, _two_numbers),
        Template("subtract", "a, b", "a minus b", lambda k, a, b: a - b, _two_numbers),
        Template("multiply", "a, b", "the product of a and b", lambda k, a, b: a * b, _two_numbers),
        Template("add_{k}", "x", "x plus {k}", lambda k, x: x + k, _number, (2, 99)),
        Template("subtract_{k}", "x", "x minus {k}", lambda k, x: x - k, _number, (2, 99)),
        Template("times_{k}", "x", "x times {k}", lambda k, x: x * k, _number, (2, 99)),
        Template("square", "x", "the square of x", lambda k, x: x * x, _number),
        Template("is_even", "n", "True if n is even and False otherwise", lambda k, n: n % 2 == 0, _number),
        Template("is_positive", "n", "True if n is greater than 0", lambda k, n: n > 0, _number),
        Template("larger", "a, b", "the larger of a and b", lambda k, a, b: max(a, b), _two_numbers),
        Template("length", "text", "the length of the string text", lambda k, t: len(t), _word),
        Template("first", "items", "the first element of the list items", lambda k, x: x[0], _numbers),
        Template("last", "items", "the last element of the list items", lambda k, x: x[-1], _numbers),
        Template("total", "numbers", "the sum of the list numbers", lambda k, x: sum(x), _numbers),
        Template(
            "largest", "numbers", "the largest number of the list numbers", lambda k, x: max(x), _numbers
        ),
        Template("shout", "text", "the string text in upper case", lambda k, t: t.upper(), _word),
        Template("join", "a, b", "the string a followed by the string b", lambda k, a, b: a + b, _two_words),
    ),
    (
        Template("reverse", "text", "the string text reversed", lambda k, t: t[::-1], _word),
        Template(
            "count_vowels",
            "text",
            "how many of the letters a, e, i, o, u are in text",
            lambda k, t: sum(c in "aeiou" for c in t),
            _word,
        ),
        Template(
            "even_numbers",
            "numbers",
            "a list of the even numbers of the list numbers, in their order",
            lambda k, x: [n for n in x if n % 2 == 0],
            _numbers,
        ),
        Template(
            "above_{k}",
            "numbers",
            "how many numbers of the list numbers are greater than {k}",
            lambda k, x: sum(n > k for n in x),
            _numbers,
            (0, 30),
        ),
        Template(
            "multiples_of_{k}",
            "n",
            "a list of the first n positive multiples of {k}, the smallest first",
            lambda k, n: [k * i for i in range(1, n + 1)],
            _natural,
            (2, 30),
        ),
        Template("power_{k}", "x", "x to the power of {k}", lambda k, x: x**k, _number, (2, 6)),
        Template("factorial", "n", "the factorial of n", lambda k, n: math.factorial(n), _natural),
        Template(
            "common_divisor",
            "a, b",
            "the greatest common divisor of a and b",
            lambda k, a, b: math.gcd(a, b),
            lambda rng: (rng.randint(2, 60), rng.randint(2, 60)),
        ),
        Template(
            "count_words",
            "text",
            "the number of words in text, which are separated by blanks",
            lambda k, t: len(t.split()),
            _sentence,
        ),
        Template(
            "digit_sum",
            "n",
            "the sum of the decimal digits of the non-negative integer n",
            lambda k, n: sum(map(int, str(n))),
            lambda rng: (rng.randint(0, 99999),),
        ),
        Template(
            "remainder_{k}", "n", "the remainder of n divided by {k}", lambda k, n: n % k, _natural, (2, 30)
        ),
        Template(
            "is_prime",
            "n",
            "True if the integer n is a prime number and False otherwise",
            lambda k, n: _is_prime(n),
            _natural,
        ),
        Template(
            "smallest_two",
            "numbers",
            "a list of the two smallest numbers of numbers, the smallest first",
            lambda k, x: sorted(x)[:2],
            _numbers,
        ),
    ),
    (
        Template(
            "run_lengths",
            "text",
            "a list of tuples (letter, count), one for each run of equal letters",
            lambda k, t: _encoded(t),
            _runs,
        ),
        Template(
            "is_balanced",
            "text",
            "True if the brackets (), [] and {{}} in text are balanced and properly "
            "nested, and False otherwise",
            lambda k, t: _balanced(t),
            _brackets,
        ),
        Template(
            "merge_intervals",
            "intervals",
            "the list of [start, end] intervals after merging those that overlap or touch, sorted by start",
            lambda k, x: _merged(x),
            _intervals,
        ),
        Template(
            "to_base_{k}",
            "n",
            "the non-negative integer n written in base {k}, as a string",
            lambda k, n: _in_base(n, k),
            lambda rng: (rng.randint(0, 500),),
            (2, 9),
        ),
        Template(
            "to_roman",
            "n",
            "the integer n (1 to 49) as a Roman numeral in upper case",
            lambda k, n: _roman(n),
            lambda rng: (rng.randint(1, 49),),
        ),
        Template(
            "shift_{k}",
            "word",
            "the lower-case string word with each letter moved {k} places forward in the "
            "alphabet, z being followed by a",
            lambda k, w: _shifted(w, k),
            _word,
            (1, 25),
        ),
        Template(
            "transpose",
            "matrix",
            "the transpose of matrix, a list of rows, as a list of lists",
            lambda k, m: [list(row) for row in zip(*m, strict=True)],
            _matrix,
        ),
        Template(
            "common_subsequence",
            "a, b",
            "the length of the longest common subsequence of the strings a and b",
            lambda k, a, b: _common(a, b),
            _two_words,
        ),
        Template(
            "every_{k}",
            "items",
            "the list of every {k}th element of items: those at positions {k}, "
            "2*{k} and so on, where positions count from 1",
            lambda k, x: x[k - 1 :: k],
            _numbers,
            (2, 4),
        ),
        Template(
            "second_largest",
            "numbers",
            "the second largest of the distinct values in numbers, or None if there is none",
            lambda k, x: sorted(set(x))[-2] if len(set(x)) > 1 else None,
            _numbers,
        ),
        Template(
            "moving_sums_{k}",
            "numbers",
            "the list of the sums of each {k} neighbouring numbers",
            lambda k, x: [sum(x[i : i + k]) for i in range(len(x) - k + 1)],
            _numbers,
            (2, 3),
        ),
        Template(
            "word_counts",
            "text",
            "a dictionary from each word of text to the number of times it occurs",
            lambda k, t: {w: t.split().count(w) for w in t.split()},
            _sentence,
        ),
    ),
)
