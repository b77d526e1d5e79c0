"""Facts as multiple choice: the easy ones by the option's text, the others by its letter."""

from __future__ import annotations

from random import Random

from lowbit_ray.measure.accuracy.generate.draft import Draft, conversation
from lowbit_ray.measure.accuracy.generate.facts import facts
from lowbit_ray.measure.accuracy.items import ChoiceTarget

__all__ = ["draw_knowledge"]

_OPTIONS = 4
_LETTERS = "ABCD"
_BY_TEXT = "Answer each question with one of the options."
_BY_LETTER = "Answer each multiple-choice question with the letter of the right option."
_TEXT_EXAMPLE = ("What colour is snow? Options: white, red, green, blue.", "white")
_LETTER_EXAMPLE = ("What colour is snow?\nA. red\nB. white\nC. green\nD. blue", "B")


def draw_knowledge(rng: Random, level: int, context_tokens: int) -> Draft:
    """A question with four options; `context_tokens` is ignored."""
    fact = rng.choice(facts(level))
    wrong = [option for option in fact.family if option != fact.answer]
    options = [fact.answer, *rng.sample(wrong, _OPTIONS - 1)]
    rng.shuffle(options)
    if level == 0:
        question = f"{fact.question} Options: {', '.join(options)}."
        messages = conversation(_BY_TEXT, *_TEXT_EXAMPLE, question)
    else:
        listed = "\n".join(f"{letter}. {option}" for letter, option in zip(_LETTERS, options, strict=True))
        messages = conversation(_BY_LETTER, *_LETTER_EXAMPLE, f"{fact.question}\n{listed}")
    target = ChoiceTarget(answer=_LETTERS[options.index(fact.answer)], options=tuple(options))
    return Draft(messages=messages, target=target, chance=1 / _OPTIONS, fact=fact.name)
