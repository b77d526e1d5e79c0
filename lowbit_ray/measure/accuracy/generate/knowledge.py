"""Facts: the easy ones as short questions, the others as multiple choice by letter.

An easy question's answer must hold the right text and none of three wrong ones; blind guessing gets none of
them right. Wrong options never stand in the question, which an answer often repeats.
"""

from __future__ import annotations

from random import Random

from lowbit_ray.measure.accuracy.generate.draft import Draft, conversation
from lowbit_ray.measure.accuracy.generate.facts import facts
from lowbit_ray.measure.accuracy.items import ChoiceTarget, ContainmentTarget

__all__ = ["draw_knowledge"]

_OPTIONS = 4
_LETTERS = "ABCD"
_OPEN = "Answer in one short sentence."
_BY_LETTER = "Answer with the letter of the right option."
_EXAMPLE = ("What colour is snow?\nA. red\nB. white\nC. green\nD. blue", "B")


def draw_knowledge(rng: Random, level: int, context_tokens: int) -> Draft:
    """A question about a fact of the level; `context_tokens` is ignored."""
    fact = rng.choice(rng.choice(facts(level)))
    wrong = [option for option in fact.family if option != fact.answer and option not in fact.question]
    chosen = rng.sample(wrong, _OPTIONS - 1)
    if level == 0:
        return Draft(
            messages=conversation(_OPEN, fact.question),
            target=ContainmentTarget(any_of=(fact.answer,), none_of=tuple(chosen)),
            fact=fact.name,
        )
    options = [fact.answer, *chosen]
    rng.shuffle(options)
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(_LETTERS, options, strict=True))
    return Draft(
        messages=conversation(_BY_LETTER, *_EXAMPLE, f"{fact.question}\n{listed}"),
        target=ChoiceTarget(answer=_LETTERS[options.index(fact.answer)], options=tuple(options)),
        chance=1 / _OPTIONS,
        fact=fact.name,
    )
