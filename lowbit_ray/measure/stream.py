"""A streamed completion, from timed reads of the socket to one row.

While a workload runs, its client keeps bytes and the moment of each read, nothing else. What they mean is
found out here, after the clock has stopped. A token's time is the time of the read that completed its event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lowbit_ray.engines.foreign_json import parse_foreign
from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import error_kind

__all__ = ["COMPLETIONS", "LARGEST_ID", "Read", "Row", "mentions_error", "raise_error", "read_row"]

COMPLETIONS = "/v1/completions"
LARGEST_ID = 2**31
"""No vocabulary is so large, and no tokenizer takes more."""


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that came in one read."""

    at_s: float
    """Seconds since the workload began."""
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One request. Times are seconds since the workload began, of a monotonic clock."""

    index: int
    submitted_s: float
    token_times_s: tuple[float, ...] = field(repr=False)
    """Arrival of each chunk that carried a token; a chunk may carry several."""
    ended_s: float
    prompt_tokens: int | None
    """As the server counts them (`usage`)."""
    completion_tokens: int | None
    token_ids: tuple[int, ...] | None = field(repr=False)
    """None where the server does not return ids."""
    text: str = field(repr=False)

    @property
    def first_s(self) -> float:
        """Arrival of the first chunk that carried a token."""
        return self.token_times_s[0]

    @property
    def last_s(self) -> float:
        """Arrival of the last chunk that carried a token."""
        return self.token_times_s[-1]

    @property
    def ttft_s(self) -> float:
        """Time to the first token."""
        return self.first_s - self.submitted_s

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first: (last − first) / (tokens − 1), tokens from `usage`."""
        return (self.last_s - self.first_s) / ((self.completion_tokens or 0) - 1)

    @property
    def e2e_s(self) -> float:
        """From submission to the last token."""
        return self.last_s - self.submitted_s


def mentions_error(data: bytes) -> bool:
    """Whether bytes of a stream may hold an error object: cheap, for use while the clock runs."""
    return b'"error"' in data


def raise_error(reads: Sequence[Read]) -> None:
    """Raises the error object that stands in the events so far, if one does."""
    for _ in _events(reads, finished=False):
        pass


def read_row(index: int, submitted_s: float, reads: Sequence[Read], *, ids_expected: bool) -> Row:
    """Reads one request's stream; EngineAnswerError for an error object in it or bytes that are not events.

    A chunk carries a token when its `token_ids` are not empty or, from servers that return no ids, its text. Of
    those the chunk with the finish reason counts as well: tokens without text (special ones, halves of a
    character) may come before it, and their time is part of the answer's.
    """
    times: list[float] = []
    ids: list[int] = []
    texts: list[str] = []
    usage: dict[str, Any] = {}
    for at_s, event in _events(reads, finished=True):
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            token_ids, text = choice.get("token_ids") or (), choice.get("text") or ""
            if token_ids if ids_expected else text or choice.get("finish_reason") is not None:
                times.append(at_s)
            ids.extend(token_ids)
            texts.append(text)
    return Row(
        index=index,
        submitted_s=submitted_s,
        token_times_s=tuple(times),
        ended_s=reads[-1].at_s if reads else submitted_s,
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        token_ids=tuple(ids) if ids_expected else None,
        text="".join(texts),
    )


def _events(reads: Sequence[Read], *, finished: bool) -> Iterable[tuple[float, dict[str, Any]]]:
    """Events and their times; with `finished`, a last line without its end counts too.

    A line's pieces are joined once, at its end: a server may send a long one byte by byte.
    """
    pieces: list[bytes] = []
    for read in reads:
        first, *lines = read.data.split(b"\n")
        pieces.append(first)
        for line in lines:
            yield from _event(read.at_s, b"".join(pieces))
            pieces = [line]
    if finished and any(pieces):
        yield from _event(reads[-1].at_s, b"".join(pieces))


def _event(at_s: float, line: bytes) -> Iterable[tuple[float, dict[str, Any]]]:
    if not line.startswith(b"data:"):
        return
    payload = line[5:].strip()
    if payload == b"[DONE]":
        return
    try:
        event = parse_foreign(payload)
    except ValueError:
        event = None
    if isinstance(event, dict) and event.get("error") is not None:
        raise EngineAnswerError(
            "the stream holds an error in place of tokens",
            where=COMPLETIONS,
            found=error_kind(event["error"]),
            remedy="Look at the server's log.",
        )
    if not _is_chunk(event):
        raise EngineAnswerError(
            "an event of the stream is not a completion chunk",
            where=COMPLETIONS,
            found=f"{len(payload)} bytes",
            expected="a JSON object with choices",
        )
    yield at_s, event


def _is_chunk(event: Any) -> bool:
    if not isinstance(event, dict) or not isinstance(event.get("usage") or {}, dict):
        return False
    choices = event.get("choices") or []
    return isinstance(choices, list) and all(_is_choice(choice) for choice in choices)


def _is_choice(choice: Any) -> bool:
    if not isinstance(choice, dict) or not isinstance(choice.get("text") or "", str):
        return False
    ids = choice.get("token_ids") or []
    return isinstance(ids, list) and all(type(token) is int and 0 <= token < LARGEST_ID for token in ids)
