"""Whether a server's own token counts can be believed: its answers tokenized again with the anchor's tokenizer.

length_shift enters the score, and a server that reports fewer tokens than it sends would gain by it. The
anchor's tokenizer gives a text about the fewest tokens there are for it, and what a server does not send
(reasoning it splits off, end-of-sequence) only makes its own count larger; so only counts below are suspect.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.accuracy.answers import Answers

__all__ = ["LengthCheck", "check_lengths"]

LEAST_SHARE = 0.95
"""Reported tokens / tokens counted again, over all answers; below it the report is not believed."""


class LengthCheck(BaseModel):
    """Both counts over all answered items."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reported_tokens: Annotated[int, Field(ge=0)]
    counted_tokens: Annotated[int, Field(ge=0)]


def check_lengths(answers: Answers, tokenizer: Path) -> LengthCheck:
    """Counts the answers' tokens again with `tokenizer` (the anchor's tokenizer.json).

    Raises EngineAnswerError where the server reported less than `LEAST_SHARE` of them, ConfigError where the
    tokenizer cannot be read.
    """
    from tokenizers import Tokenizer

    try:
        encoder = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(
            "the tokenizer cannot be read", where=tokenizer.name, found=type(error).__name__
        ) from None
    answered = [answer for answer in answers.answers if answer.error is None]
    reported = sum(answer.completion_tokens for answer in answered)
    encodings = encoder.encode_batch(
        [_encodable(answer.text) for answer in answered], add_special_tokens=False
    )
    counted = sum(len(encoding.ids) for encoding in encodings)
    if reported < LEAST_SHARE * counted:
        raise EngineAnswerError(
            "the server reports fewer tokens than its answers have",
            where="/v1/chat/completions: usage.completion_tokens",
            found=f"{reported} over {len(answered)} answers",
            expected=f"about {counted}, by the anchor's tokenizer",
        )
    return LengthCheck(reported_tokens=reported, counted_tokens=counted)


def _encodable(text: str) -> str:
    """Lone surrogates, which JSON may carry, as the replacement character."""
    return text.encode("utf-8", "replace").decode()
