"""What a generator hands over: an item without its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from lowbit_ray.measure.accuracy.items import Message, Target

__all__ = ["Draft", "Generator", "conversation", "words"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A question with its answer."""

    messages: tuple[Message, ...] = field(repr=False)
    target: Target = field(repr=False)
    chance: float = 0.0
    """Probability that a blind guess is right."""
    fact: str | None = None
    """Items about the same fact are one cluster; None where each item stands alone."""


class Generator(Protocol):
    """Draws one item of a difficulty (0 easy, 1 middling, 2 hard); the same state of `rng`, the same item."""

    def __call__(self, rng: Random, level: int, context_tokens: int) -> Draft: ...


def words(text: str) -> tuple[str, ...]:
    """The words of a table that is written as one text."""
    return tuple(text.split())


def conversation(system: str, *turns: str) -> tuple[Message, ...]:
    """A system message, then user and assistant in turns; the last one is the question."""
    messages = [Message(role="system", content=system)]
    for index, text in enumerate(turns):
        messages.append(Message(role="assistant" if index % 2 else "user", content=text))
    return tuple(messages)
