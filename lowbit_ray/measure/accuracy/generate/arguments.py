"""What the code domain's functions are called with: one draw a call."""

from __future__ import annotations

from random import Random

__all__ = [
    "brackets",
    "intervals",
    "matrix",
    "natural",
    "number",
    "numbers",
    "runs",
    "sentence",
    "two_numbers",
    "two_words",
    "word",
]


def number(rng: Random) -> tuple[int]:
    """Small, of either sign."""
    return (rng.randint(-50, 50),)


def natural(rng: Random) -> tuple[int]:
    """1 to 40."""
    return (rng.randint(1, 40),)


def two_numbers(rng: Random) -> tuple[int, int]:
    """The second one is positive."""
    return rng.randint(-50, 50), rng.randint(1, 50)


def numbers(rng: Random) -> tuple[list[int]]:
    """A list of small integers."""
    return ([rng.randint(-20, 40) for _ in range(rng.randint(3, 8))],)


def word(rng: Random) -> tuple[str]:
    """Lower-case letters."""
    return ("".join(rng.choice("abcdeilnorstu") for _ in range(rng.randint(3, 8))),)


def two_words(rng: Random) -> tuple[str, str]:
    """Two words."""
    return word(rng)[0], word(rng)[0]


def sentence(rng: Random) -> tuple[str]:
    """Words with blanks between."""
    return (" ".join(word(rng)[0] for _ in range(rng.randint(2, 6))),)


def matrix(rng: Random) -> tuple[list[list[int]]]:
    """A list of equal rows of digits."""
    rows, columns = rng.randint(2, 4), rng.randint(2, 4)
    return ([[rng.randint(0, 9) for _ in range(columns)] for _ in range(rows)],)


def brackets(rng: Random) -> tuple[str]:
    """Balanced ones half of the time."""
    balanced = rng.choice(("()", "[()]", "([])()", "{[]()}", "(())"))
    return (balanced if rng.random() < 0.5 else "".join(rng.choice("()[]{}") for _ in range(4)),)


def runs(rng: Random) -> tuple[str]:
    """Repeated letters."""
    return ("".join(rng.choice("abc") * rng.randint(1, 4) for _ in range(rng.randint(2, 5))),)


def intervals(rng: Random) -> tuple[list[list[int]]]:
    """[start, end] in no order."""
    starts = [rng.randint(0, 30) for _ in range(rng.randint(3, 6))]
    return ([[start, start + rng.randint(1, 8)] for start in starts],)
