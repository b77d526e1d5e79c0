"""What a server answered, kept as JSON until it is scored, and how each answer was judged.

Answers hold a model's text and are hidden like the items; judged items hold none and say only how it went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.accuracy.items import DomainName, Hidden, Item, items_digest
from lowbit_ray.measure.accuracy.scorers import Case, Outcome, judge

__all__ = ["Answer", "Answers", "JudgedItem", "score_sides"]

Count = Annotated[int, Field(ge=0)]


class Answer(Hidden):
    """One item's answer, or why there is none."""

    item_id: str
    text: Annotated[str, Field(repr=False)] = ""
    completion_tokens: Count = 0
    """Generated tokens, as the server's usage says."""
    finish_reason: str | None = None
    error: str | None = None
    """Why the item is unanswered, without any text of the request or reply; None where it is answered."""


class Answers(Hidden):
    """All answers of one server, in the items' order."""

    items_digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Fingerprint of the items asked."""
    answers: Annotated[tuple[Answer, ...], Field(repr=False)]
    wall_s: Annotated[float, Field(ge=0)]
    """Seconds from the first request to the last reply."""


class JudgedItem(Hidden):
    """An item's outcome, with what pairing it needs and no text."""

    item_id: str
    domain: DomainName
    cluster: str
    chance: float
    level: int
    outcome: Outcome | None
    """None where the server gave no answer."""
    completion_tokens: Count
    truncated: bool
    """Generation ended at max_tokens."""

    @property
    def right(self) -> bool:
        """Whether it counts as right; no answer does not."""
        return self.outcome is Outcome.RIGHT


def score_sides(items: Sequence[Item], *sides: Answers) -> tuple[tuple[JudgedItem, ...], ...]:
    """Judges the answers of several servers to the same items; needs no server.

    All at once: each scorer with a process of its own starts it for all sides together.

    Raises ConfigError where answers are to other items.
    """
    for answers in sides:
        _check_items(items, answers)
    given = [
        (side, item, answer)
        for side, answers in enumerate(sides)
        for item, answer in zip(items, answers.answers, strict=True)
        if answer.error is None
    ]
    verdicts = judge([Case(item.target, answer.text) for _, item, answer in given])
    outcomes = {(side, item.id): verdict for (side, item, _), verdict in zip(given, verdicts, strict=True)}
    return tuple(
        tuple(
            _judged(item, answer, outcomes.get((side, item.id)))
            for item, answer in zip(items, answers.answers, strict=True)
        )
        for side, answers in enumerate(sides)
    )


def _check_items(items: Sequence[Item], answers: Answers) -> None:
    asked = items_digest(items)
    if answers.items_digest != asked or [a.item_id for a in answers.answers] != [i.id for i in items]:
        raise ConfigError(
            "the answers are to other items",
            where="items_digest",
            found=answers.items_digest[:16],
            expected=asked[:16],
            remedy="Make the items with the seed and the task file that the answers were collected with.",
        )


def _judged(item: Item, answer: Answer, outcome: Outcome | None) -> JudgedItem:
    return JudgedItem(
        item_id=item.id,
        domain=item.domain,
        cluster=item.cluster,
        chance=item.chance,
        level=item.level,
        outcome=outcome,
        completion_tokens=answer.completion_tokens,
        truncated=answer.finish_reason == "length",
    )
