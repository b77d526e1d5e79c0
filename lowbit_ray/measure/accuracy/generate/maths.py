"""Integer maths: sums, differences and products in digits and in words, then several steps."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from lowbit_ray.measure.accuracy.generate.draft import Draft, conversation
from lowbit_ray.measure.accuracy.items import MathsTarget

__all__ = ["draw_maths"]

_SYSTEM = "You are good at arithmetic."
# an answer in the form of an equation is short, and small models get more of them right than bare numbers
_EXAMPLES = (
    (
        *("What is 2 + 3?", "2 + 3 = 5"),
        *("Tom has 6 pens and loses 2. How many pens does Tom have?", "6 - 2 = 4"),
        *("Sue has 7 cups and gets 2 more. How many cups does Sue have?", "7 + 2 = 9"),
    ),
    (
        *("What is 21 + 13?", "21 + 13 = 34"),
        *("Tom has 20 pens, finds 5 more and then gives 7 away. How many pens are left?", "20 + 5 - 7 = 18"),
    ),
    (),
)
_WORKED = " Work it out, then end with: The answer is N."
_NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Iris", "Jonas", "Lena", "Max")
_THINGS = ("apples", "books", "coins", "eggs", "shells", "stamps", "marbles", "pencils", "cards", "stones")


@dataclass(frozen=True, slots=True)
class _Problem:
    question: str
    answer: int


def draw_maths(rng: Random, level: int, context_tokens: int) -> Draft:
    """A problem whose answer is an integer; `context_tokens` is ignored."""
    # small models get most sums right and few stories; an easy level without any right answer tells nothing
    easy = (_small_sum, _small_sum, _small_sum, _small_word)
    kinds = (easy, (_two_digits, _two_steps, _shares), (_expression, _purchase, _remainder))
    problem = rng.choice(kinds[level])(rng)
    question = problem.question + (_WORKED if level == 2 else "")
    return Draft(
        messages=conversation(_SYSTEM, *_EXAMPLES[level], question),
        target=MathsTarget(answer=str(problem.answer)),
    )


def _small_sum(rng: Random) -> _Problem:
    left, right = rng.randint(2, 20), rng.randint(1, 9)
    sign = rng.choice("++**-")
    if sign == "+":
        return _Problem(f"What is {left} + {right}?", left + right)
    if sign == "-":
        return _Problem(f"What is {left + right} - {right}?", left)
    left, right = rng.randint(2, 10), rng.randint(2, 10)
    return _Problem(f"What is {left} times {right}?", left * right)


def _small_word(rng: Random) -> _Problem:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    start, change = rng.randint(5, 15), rng.randint(1, 5)
    if rng.random() < 0.5:
        return _Problem(
            f"{name} has {start} {things} and gets {change} more. How many {things} does {name} have?",
            start + change,
        )
    return _Problem(
        f"{name} has {start} {things} and loses {change}. How many {things} does {name} have?", start - change
    )


def _two_digits(rng: Random) -> _Problem:
    left, right = rng.randint(21, 99), rng.randint(11, 99)
    sign = rng.choice("+-*")
    if sign == "+":
        return _Problem(f"What is {left} + {right}?", left + right)
    if sign == "-":
        return _Problem(f"What is {left} - {right}?", left - right)
    right = rng.randint(3, 9)
    return _Problem(f"What is {left} times {right}?", left * right)


def _two_steps(rng: Random) -> _Problem:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    start, gain = rng.randint(20, 60), rng.randint(5, 30)
    loss = rng.randint(2, start + gain - 1)
    return _Problem(
        f"{name} has {start} {things}, finds {gain} more and then gives {loss} away. "
        f"How many {things} are left?",
        start + gain - loss,
    )


def _shares(rng: Random) -> _Problem:
    friends, each = rng.randint(3, 9), rng.randint(4, 15)
    things = rng.choice(_THINGS)
    return _Problem(
        f"{friends} friends share {friends * each} {things} equally. How many {things} does each one get?",
        each,
    )


def _expression(rng: Random) -> _Problem:
    a, b, c, d = rng.randint(12, 60), rng.randint(3, 12), rng.randint(3, 15), rng.randint(11, 99)
    if rng.random() < 0.5:
        return _Problem(f"What is {a} + {b} * {c} - {d}?", a + b * c - d)
    return _Problem(f"What is ({a} - {b}) * {c} + {d}?", (a - b) * c + d)


def _purchase(rng: Random) -> _Problem:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    boxes, size, price, gone = rng.randint(3, 12), rng.randint(4, 12), rng.randint(2, 9), rng.randint(2, 11)
    return _Problem(
        f"{name} buys {boxes} boxes with {size} {things} in each and pays {price} dollars a box. On the way "
        f"home {gone} {things} break, and {name} sells the rest for 2 dollars each. How many dollars does "
        f"{name} earn in the end, after the cost of the boxes?",
        2 * (boxes * size - gone) - boxes * price,
    )


def _remainder(rng: Random) -> _Problem:
    number, divisor, factor = rng.randint(100, 999), rng.randint(6, 19), rng.randint(2, 9)
    return _Problem(
        f"Take the remainder of {number} divided by {divisor} and multiply it by {factor}. What do you get?",
        number % divisor * factor,
    )
