"""Key-value retrieval: records scattered in plain sentences, one of which is asked for at the end.

Easy items hold few records, middling ones many, and hard ones many whose keys differ by one word. The text
between is built from a small grammar, so that its length is a matter of counting.
"""

from __future__ import annotations

from random import Random

from lowbit_ray.measure.accuracy.generate.draft import Draft, conversation, words
from lowbit_ray.measure.accuracy.items import ContainmentTarget

__all__ = ["approximate_tokens", "draw_retrieval"]

_SYSTEM = "Answer the question about the text with the code only."
_COLOURS = words(
    "red blue green white black yellow silver golden brown purple orange grey pink dark bright pale"
)
_ANIMALS = words(
    "fox bear wolf lion tiger horse eagle snake otter mouse rabbit turtle camel zebra whale crane goose "
    "sheep donkey monkey panda beaver falcon lizard spider salmon pigeon badger"
)
_SUBJECTS = (
    *("The baker", "A teacher", "The old sailor", "My neighbour"),
    *("The young doctor", "A farmer", "The painter", "The driver"),
)
_ACTIONS = (
    *("walked to", "looked at", "talked about", "waited near"),
    *("came back from", "thought of", "wrote about", "passed by"),
)
_PLACES = (
    *("the market", "the river", "a small shop", "the station"),
    *("the garden", "the old bridge", "a quiet street", "the hill"),
)
_TIMES = (
    *("in the morning", "after lunch", "on Monday", "before the rain"),
    *("last week", "at night", "every day", "in spring"),
)
_RECORDS = (4, 12, 24)
_RECORD_TOKENS = 14
_MANY_RECORDS_SHARE = 0.6
"""Largest share of a context that records take."""


def approximate_tokens(text: str) -> int:
    """Tokens of plain English with digits, within some 15 %: one a word, a digit and a stop."""
    return len(text.split()) + sum(character.isdigit() or character in ".,?" for character in text)


def draw_retrieval(rng: Random, level: int, context_tokens: int) -> Draft:
    """A context of about `context_tokens` tokens and the question for one code in it."""
    count = max(2, min(_RECORDS[level], int(context_tokens * _MANY_RECORDS_SHARE) // _RECORD_TOKENS))
    keys = _keys(rng, level, count)
    codes = [str(code) for code in rng.sample(range(1000, 10000), count)]
    records = [f"The code of the {key} is {code}." for key, code in zip(keys, codes, strict=True)]
    asked = rng.randrange(count)
    text = " ".join(_scattered(rng, records, context_tokens))
    question = f"{text}\n\nQuestion: What is the code of the {keys[asked]}?"
    return Draft(
        messages=conversation(_SYSTEM, question),
        target=ContainmentTarget(any_of=(codes[asked],), none_of=tuple(codes[:asked] + codes[asked + 1 :])),
    )


def _keys(rng: Random, level: int, count: int) -> list[str]:
    """Names of records: easy ones share no word, hard ones come from few words."""
    if level == 0:
        return [
            f"{colour} {animal}"
            for colour, animal in zip(rng.sample(_COLOURS, count), rng.sample(_ANIMALS, count), strict=True)
        ]
    colours = rng.sample(_COLOURS, len(_COLOURS) if level == 1 else 6)
    animals = rng.sample(_ANIMALS, len(_ANIMALS) if level == 1 else 6)
    return rng.sample([f"{colour} {animal}" for colour in colours for animal in animals], count)


def _scattered(rng: Random, records: list[str], context_tokens: int) -> list[str]:
    """The records at random places among sentences, in a random order."""
    room = context_tokens - sum(map(approximate_tokens, records))
    sentences = []
    while room > 0:
        choices = (rng.choice(words) for words in (_SUBJECTS, _ACTIONS, _PLACES, _TIMES))
        sentence = " ".join(choices) + "."
        sentences.append(sentence)
        room -= approximate_tokens(sentence)
    for record in records:
        sentences.insert(rng.randint(0, len(sentences)), record)
    return sentences
