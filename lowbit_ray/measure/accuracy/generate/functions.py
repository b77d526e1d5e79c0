"""The functions that the code domain asks for, by difficulty: description, reference and arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from lowbit_ray.measure.accuracy.generate.arguments import (
    brackets,
    intervals,
    matrix,
    natural,
    number,
    numbers,
    runs,
    sentence,
    two_numbers,
    two_words,
    word,
)
from lowbit_ray.measure.accuracy.generate.references import (
    common_subsequence,
    in_base,
    is_balanced,
    is_prime,
    merged_intervals,
    roman_numeral,
    run_lengths,
    shifted,
)

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


TEMPLATES: tuple[tuple[Template, ...], ...] = (
    (
        Template("add", "a, b", "the sum of a and b", lambda k, a, b: a + b, two_numbers),
        Template("subtract", "a, b", "a minus b", lambda k, a, b: a - b, two_numbers),
        Template("multiply", "a, b", "the product of a and b", lambda k, a, b: a * b, two_numbers),
        Template("add_{k}", "x", "x plus {k}", lambda k, x: x + k, number, (2, 99)),
        Template("subtract_{k}", "x", "x minus {k}", lambda k, x: x - k, number, (2, 99)),
        Template("times_{k}", "x", "x times {k}", lambda k, x: x * k, number, (2, 99)),
        Template("square", "x", "the square of x", lambda k, x: x * x, number),
        Template("is_even", "n", "True if n is even and False otherwise", lambda k, n: n % 2 == 0, number),
        Template("is_positive", "n", "True if n is greater than 0", lambda k, n: n > 0, number),
        Template("larger", "a, b", "the larger of a and b", lambda k, a, b: max(a, b), two_numbers),
        Template("length", "text", "the length of the string text", lambda k, t: len(t), word),
        Template("first", "items", "the first element of the list items", lambda k, x: x[0], numbers),
        Template("last", "items", "the last element of the list items", lambda k, x: x[-1], numbers),
        Template("total", "numbers", "the sum of the list numbers", lambda k, x: sum(x), numbers),
        Template(
            "largest", "numbers", "the largest number of the list numbers", lambda k, x: max(x), numbers
        ),
        Template("shout", "text", "the string text in upper case", lambda k, t: t.upper(), word),
        Template("join", "a, b", "the string a followed by the string b", lambda k, a, b: a + b, two_words),
    ),
    (
        Template("reverse", "text", "the string text reversed", lambda k, t: t[::-1], word),
        Template(
            "count_vowels",
            "text",
            "how many of the letters a, e, i, o, u are in text",
            lambda k, t: sum(c in "aeiou" for c in t),
            word,
        ),
        Template(
            "even_numbers",
            "numbers",
            "a list of the even numbers of the list numbers, in their order",
            lambda k, x: [n for n in x if n % 2 == 0],
            numbers,
        ),
        Template(
            "above_{k}",
            "numbers",
            "how many numbers of the list numbers are greater than {k}",
            lambda k, x: sum(n > k for n in x),
            numbers,
            (0, 30),
        ),
        Template(
            "multiples_of_{k}",
            "n",
            "a list of the first n positive multiples of {k}, the smallest first",
            lambda k, n: [k * i for i in range(1, n + 1)],
            natural,
            (2, 30),
        ),
        Template("power_{k}", "x", "x to the power of {k}", lambda k, x: x**k, number, (2, 6)),
        Template("factorial", "n", "the factorial of n", lambda k, n: math.factorial(n), natural),
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
            sentence,
        ),
        Template(
            "digit_sum",
            "n",
            "the sum of the decimal digits of the non-negative integer n",
            lambda k, n: sum(map(int, str(n))),
            lambda rng: (rng.randint(0, 99999),),
        ),
        Template(
            "remainder_{k}", "n", "the remainder of n divided by {k}", lambda k, n: n % k, natural, (2, 30)
        ),
        Template(
            "is_prime",
            "n",
            "True if the integer n is a prime number and False otherwise",
            lambda k, n: is_prime(n),
            natural,
        ),
        Template(
            "smallest_two",
            "numbers",
            "a list of the two smallest numbers of numbers, the smallest first",
            lambda k, x: sorted(x)[:2],
            numbers,
        ),
    ),
    (
        Template(
            "run_lengths",
            "text",
            "a list of tuples (letter, count), one for each run of equal letters",
            lambda k, t: run_lengths(t),
            runs,
        ),
        Template(
            "is_balanced",
            "text",
            "True if the brackets (), [] and {{}} in text are balanced and properly "
            "nested, and False otherwise",
            lambda k, t: is_balanced(t),
            brackets,
        ),
        Template(
            "merge_intervals",
            "intervals",
            "the list of [start, end] intervals after merging those that overlap or touch, sorted by start",
            lambda k, x: merged_intervals(x),
            intervals,
        ),
        Template(
            "to_base_{k}",
            "n",
            "the non-negative integer n written in base {k}, as a string",
            lambda k, n: in_base(n, k),
            lambda rng: (rng.randint(0, 500),),
            (2, 9),
        ),
        Template(
            "to_roman",
            "n",
            "the integer n (1 to 49) as a Roman numeral in upper case",
            lambda k, n: roman_numeral(n),
            lambda rng: (rng.randint(1, 49),),
        ),
        Template(
            "shift_{k}",
            "word",
            "the lower-case string word with each letter moved {k} places forward in the "
            "alphabet, z being followed by a",
            lambda k, w: shifted(w, k),
            word,
            (1, 25),
        ),
        Template(
            "transpose",
            "matrix",
            "the transpose of matrix, a list of rows, as a list of lists",
            lambda k, m: [list(row) for row in zip(*m, strict=True)],
            matrix,
        ),
        Template(
            "common_subsequence",
            "a, b",
            "the length of the longest common subsequence of the strings a and b",
            lambda k, a, b: common_subsequence(a, b),
            two_words,
        ),
        Template(
            "every_{k}",
            "items",
            "the list of every {k}th element of items: those at positions {k}, "
            "2*{k} and so on, where positions count from 1",
            lambda k, x: x[k - 1 :: k],
            numbers,
            (2, 4),
        ),
        Template(
            "second_largest",
            "numbers",
            "the second largest of the distinct values in numbers, or None if there is none",
            lambda k, x: sorted(set(x))[-2] if len(set(x)) > 1 else None,
            numbers,
        ),
        Template(
            "moving_sums_{k}",
            "numbers",
            "the list of the sums of each {k} neighbouring numbers",
            lambda k, x: [sum(x[i : i + k]) for i in range(len(x) - k + 1)],
            numbers,
            (2, 3),
        ),
        Template(
            "word_counts",
            "text",
            "a dictionary from each word of text to the number of times it occurs",
            lambda k, t: {w: t.split().count(w) for w in t.split()},
            sentence,
        ),
    ),
)
