"""An accuracy item: what is asked, what is right, and which scorer decides.

Items may be hidden. Their text stays out of `repr` and out of validation errors, so that neither a log line
nor a traceback can carry a prompt or an answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "CallCheck",
    "ChoiceTarget",
    "Constraint",
    "ConstraintKind",
    "ContainmentTarget",
    "DomainName",
    "Hidden",
    "InstructionTarget",
    "Item",
    "MathsTarget",
    "Message",
    "Target",
    "UnitTestTarget",
    "items_digest",
]

DomainName = Literal["math", "code", "knowledge", "instruction", "retrieval"]
ConstraintKind = Literal[
    "exactly",
    "contains",
    "excludes",
    "starts_with",
    "ends_with",
    "repeats",
    "words_at_most",
    "words_at_least",
    "words_exactly",
    "lines_exactly",
    "bullets_exactly",
    "commas_exactly",
    "lowercase",
    "uppercase",
    "json_keys",
]


class Hidden(BaseModel):
    """A frozen model whose values never show up in a validation error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class Message(Hidden):
    """One turn of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(min_length=1, repr=False)]


class MathsTarget(Hidden):
    """A number or expression; equal values in another form are right too."""

    scorer: Literal["maths"] = "maths"
    answer: Annotated[str, Field(min_length=1, repr=False)]


class ChoiceTarget(Hidden):
    """The letter of the right option."""

    scorer: Literal["choice"] = "choice"
    answer: Annotated[str, Field(pattern=r"^[A-J]$", repr=False)]
    options: Annotated[tuple[str, ...], Field(min_length=2, max_length=10, repr=False)]
    """Texts of the options, the first of them being A."""


class CallCheck(Hidden):
    """One check of a function: an expression that calls it, and the literal it must be equal to."""

    expression: Annotated[str, Field(min_length=1, repr=False)]
    expected: Annotated[str, Field(min_length=1, repr=False)]
    """A Python literal; it never enters the sandbox, so an answer cannot read it there."""


class UnitTestTarget(Hidden):
    """The answer's code must make every check hold."""

    scorer: Literal["unit_tests"] = "unit_tests"
    checks: Annotated[tuple[CallCheck, ...], Field(min_length=1, repr=False)]


class Constraint(Hidden):
    """A property of the answer's form that a program can decide."""

    kind: ConstraintKind
    text: Annotated[str, Field(repr=False)] = ""
    """The text that must or must not be there; `json_keys`: names with commas between them."""
    count: Annotated[int, Field(ge=0)] = 0


class InstructionTarget(Hidden):
    """Every constraint must hold."""

    scorer: Literal["instructions"] = "instructions"
    constraints: Annotated[tuple[Constraint, ...], Field(min_length=1, repr=False)]


class ContainmentTarget(Hidden):
    """The answer must hold one of the texts as whole words, and none of the distractors."""

    scorer: Literal["containment"] = "containment"
    any_of: Annotated[tuple[str, ...], Field(min_length=1, repr=False)]
    none_of: Annotated[tuple[str, ...], Field(repr=False)] = ()


Target = Annotated[
    MathsTarget | ChoiceTarget | UnitTestTarget | InstructionTarget | ContainmentTarget,
    Field(discriminator="scorer"),
]


class Item(Hidden):
    """One question of one domain."""

    id: Annotated[str, Field(min_length=1)]
    """Unique among the items of an evaluation, and without any of its text."""
    domain: DomainName
    messages: Annotated[tuple[Message, ...], Field(min_length=1, repr=False)]
    """Ends with the user's turn; earlier turns may show the form of an answer."""
    target: Annotated[Target, Field(repr=False)]
    cluster: Annotated[str, Field(min_length=1)]
    """Items that share a passage or a fact share the cluster: their results are not independent."""
    chance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that a blind guess is right."""
    level: Annotated[int, Field(ge=0)] = 0
    """Difficulty, 0 easiest; 0 where it is not known."""

    @property
    def scorer(self) -> str:
        """Name of the scorer."""
        return self.target.scorer


def items_digest(items: Iterable[Item]) -> str:
    """A fingerprint (SHA-256, hexadecimal) of items and their order; answers of other items do not pair."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(item.model_dump_json().encode())
        digest.update(b"\n")
    return digest.hexdigest()
