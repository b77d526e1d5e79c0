"""Verifiable instructions: short requests whose form a program checks."""

from __future__ import annotations

from random import Random

from lowbit_ray.measure.accuracy.generate.draft import Draft, conversation, words
from lowbit_ray.measure.accuracy.items import Constraint, InstructionTarget

__all__ = ["draw_instruction"]

_SYSTEM = "You follow instructions exactly."
_ONE_WORD_EXAMPLES = (
    *("Reply with the word sun and nothing else.", "sun"),
    *("Reply with the word lamp and nothing else.", "lamp"),
)
_WORDS = words(
    "river garden window summer bridge candle forest market mirror pencil rabbit silver thunder village "
    "winter yellow anchor basket camera dragon engine feather guitar harbor island jacket kettle ladder "
    "meadow needle"
)
_TOPICS = (
    "the sea",
    "a dog",
    "rain",
    "the moon",
    "a library",
    "breakfast",
    "a train",
    "friendship",
    "a garden",
    "winter",
    "a bicycle",
    "music",
    "bread",
    "the city",
    "a mountain",
    "sleep",
    "a school",
    "the wind",
    "a cat",
    "a river",
)
_KEYS = ("name", "age", "city", "colour", "price", "title", "year", "size", "weight", "owner")


def draw_instruction(rng: Random, level: int, context_tokens: int) -> Draft:
    """A request with one constraint (easy), one or two (middling), two or three (hard)."""
    draw = rng.choice((_EASY, _MIDDLING, _HARD)[level])
    request, constraints = draw(rng)
    # without them small models refuse to repeat a word; with them they copy the word into longer answers
    examples = _ONE_WORD_EXAMPLES if draw is _one_word else ()
    target = InstructionTarget(constraints=tuple(constraints))
    return Draft(messages=conversation(_SYSTEM, *examples, request), target=target)


def _one_word(rng: Random) -> tuple[str, list[Constraint]]:
    word = rng.choice(_WORDS)
    return f"Reply with the word {word} and nothing else.", [Constraint(kind="exactly", text=word)]


def _holding(rng: Random) -> tuple[str, list[Constraint]]:
    word, topic = rng.choice(_WORDS), rng.choice(_TOPICS)
    return (
        f"Write one short sentence about {topic} that holds the word {word}.",
        [Constraint(kind="contains", text=word)],
    )


def _short(rng: Random) -> tuple[str, list[Constraint]]:
    topic, count = rng.choice(_TOPICS), rng.randint(10, 20)
    return (
        f"Describe {topic} in one sentence of at most {count} words.",
        [Constraint(kind="words_at_most", count=count)],
    )


def _starting(rng: Random) -> tuple[str, list[Constraint]]:
    word, topic = rng.choice(_WORDS).capitalize(), rng.choice(_TOPICS)
    return (
        f"Write one sentence about {topic}. The first word of the sentence must be {word}.",
        [Constraint(kind="starts_with", text=word)],
    )


def _capitals(rng: Random) -> tuple[str, list[Constraint]]:
    topic = rng.choice(_TOPICS)
    return f"Write one short sentence about {topic} in capital letters only.", [Constraint(kind="uppercase")]


def _repeated(rng: Random) -> tuple[str, list[Constraint]]:
    word, count = rng.choice(_WORDS), rng.randint(3, 5)
    return (
        f"Write the word {word} exactly {count} times, with blanks between, and nothing else.",
        [Constraint(kind="repeats", text=word, count=count), Constraint(kind="words_exactly", count=count)],
    )


def _lower_and_short(rng: Random) -> tuple[str, list[Constraint]]:
    topic, count = rng.choice(_TOPICS), rng.randint(8, 15)
    return (
        f"Describe {topic} in at most {count} words. Use lower-case letters only.",
        [Constraint(kind="lowercase"), Constraint(kind="words_at_most", count=count)],
    )


def _bullets(rng: Random) -> tuple[str, list[Constraint]]:
    topic, count, word = rng.choice(_TOPICS), rng.randint(3, 5), rng.choice(_WORDS)
    return (
        f"Give exactly {count} bullet points about {topic}, each on a line that starts with '- '. "
        f"Mention the word {word}, and do not use any comma.",
        [
            Constraint(kind="bullets_exactly", count=count),
            Constraint(kind="contains", text=word),
            Constraint(kind="commas_exactly", count=0),
        ],
    )


def _exact_words(rng: Random) -> tuple[str, list[Constraint]]:
    topic, count, word = rng.choice(_TOPICS), rng.randint(6, 10), rng.choice(_WORDS)
    return (
        f"Write one sentence of exactly {count} words about {topic}. It must hold the word {word}.",
        [Constraint(kind="words_exactly", count=count), Constraint(kind="contains", text=word)],
    )


def _json(rng: Random) -> tuple[str, list[Constraint]]:
    keys = ", ".join(rng.sample(_KEYS, 3))
    return (
        f"Describe {rng.choice(_TOPICS)} as one JSON object with exactly the keys {keys}. "
        "Reply with JSON only.",
        [Constraint(kind="json_keys", text=keys)],
    )


def _without_letter(rng: Random) -> tuple[str, list[Constraint]]:
    topic, letter, ending = rng.choice(_TOPICS), rng.choice("cgkmpu"), rng.choice(("!", "?"))
    return (
        f"Write one sentence about {topic} with at least five words. Do not use the letter {letter} "
        f"anywhere, and end with '{ending}'.",
        [
            Constraint(kind="excludes", text=letter),
            Constraint(kind="words_at_least", count=5),
            Constraint(kind="ends_with", text=ending),
        ],
    )


_EASY = (_one_word, _holding, _short)
_MIDDLING = (_starting, _capitals, _repeated, _lower_and_short)
_HARD = (_bullets, _exact_words, _json, _without_letter)
