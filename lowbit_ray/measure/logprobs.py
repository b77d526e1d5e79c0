"""Top-K log-probabilities by token id at every position of given texts, from any OpenAI-compatible server.

Three ways to ask, the strongest that the server knows is found by a probe and recorded:

- `prompt_logprobs`: vLLM's own field, teacher-forced, keyed by token id;
- `echo`: `echo` + `logprobs`, teacher-forced, keyed by id through `return_tokens_as_token_ids`;
- `generation`: log-probabilities of what the server itself generates, greedily, from the text so far. Every
  position up to and including its first token that differs from the text is a position of the text; there it
  is asked again from the text. Exact, at one request for each token on which server and text disagree.

Ids, never text: different tokens may share their text. Whatever cannot be a log-probability is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
import numpy as np
from numpy.typing import NDArray

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint, Refusal, connect, first_choice, post_json
from lowbit_ray.measure.rows import Entry, LegacyRow, generated_rows, legacy_rows, pack, prompt_rows
from lowbit_ray.measure.stream import COMPLETIONS

__all__ = [
    "METHODS",
    "NO_LOGPROBS",
    "Method",
    "Positions",
    "Question",
    "ask",
    "generate_with_logprobs",
    "knows",
    "lacks_logprobs",
    "probe",
]

Method = Literal["prompt_logprobs", "echo", "generation"]
METHODS: tuple[Method, ...] = ("prompt_logprobs", "echo", "generation")
NO_LOGPROBS = "the engine returns no log-probabilities by token id"
BYTES_BESIDE, BYTES_AN_ENTRY = 2**20, 2**9
"""Of an answer at most: a server that sends more for a question of known size fills our memory, not its answer."""
GENERATION_BLOCK = 32
"""Tokens asked for at a time with `generation`; those after a difference are thrown away."""


@dataclass(frozen=True, slots=True)
class Question:
    """One text to score."""

    tokens: tuple[int, ...] = field(repr=False)
    start: int
    """First position scored, at least 1: the first token has nothing before it."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The answer to one question: one row a position, [T, K]."""

    ids: NDArray[np.int64] = field(repr=False)
    """Top-K token ids, most likely first; −1 where the server lists fewer than K (a vocabulary below K)."""
    logprobs: NDArray[np.float64] = field(repr=False)
    """Their log-probabilities; −inf beside an id of −1."""
    actual: NDArray[np.float64] = field(repr=False)
    """Log-probability of the text's own token, [T]; NaN where the server did not say."""
    actual_ids: NDArray[np.int64] = field(repr=False)
    """The text's own tokens, [T]."""


def lacks_logprobs(error: EngineAnswerError) -> bool:
    """Whether this is the outcome that breaks the contract: no log-probabilities at all."""
    return error.summary == NO_LOGPROBS


async def probe(endpoint: Endpoint, text: Sequence[int], top_k: int, *, timeout_s: float) -> Method:
    """The strongest method the server knows, tried on the first tokens of `text`.

    Raises EngineAnswerError with the summary NO_LOGPROBS where it knows none, and any other one where it
    answers wrongly.
    """
    question = Question(tuple(text[:6]), start=3)
    found: list[str] = []
    async with connect(endpoint, timeout_s=timeout_s) as session:
        greedy = _greedy(endpoint, question.tokens, 1)
        await post_json(session, endpoint, COMPLETIONS, greedy, max_bytes=BYTES_BESIDE)
        for method in METHODS:
            missing = await _missing(session, endpoint, question, method, top_k)
            if missing is None:
                return method
            found.append(f"{method}: {missing}")
    raise EngineAnswerError(
        NO_LOGPROBS,
        where=COMPLETIONS,
        found="; ".join(found),
        expected=f"{top_k} log-probabilities by one of {', '.join(METHODS)}",
        remedy="Serve with log-probabilities by token id (vLLM: --max-logprobs).",
    )


async def knows(
    endpoint: Endpoint, method: Method, text: Sequence[int], top_k: int, *, timeout_s: float
) -> bool:
    """Whether the server knows this method, tried on the first tokens of `text`."""
    async with connect(endpoint, timeout_s=timeout_s) as session:
        return await _missing(session, endpoint, Question(tuple(text[:6]), start=3), method, top_k) is None


async def _missing(
    session: aiohttp.ClientSession, endpoint: Endpoint, question: Question, method: Method, top_k: int
) -> str | None:
    """What the server answers where it does not know the method; None where it does."""
    try:
        await _ASK[method](session, endpoint, question, top_k)
    except Refusal as refusal:
        return str(refusal.found)
    except EngineAnswerError as error:
        if not lacks_logprobs(error):
            raise
        return "none in the answer"
    return None


async def ask(
    endpoint: Endpoint,
    questions: Sequence[Question],
    top_k: int,
    *,
    method: Method,
    concurrency: int,
    timeout_s: float,
    order: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Positions]:
    """Answers to all questions, in their order; sent in `order`, `concurrency` at a time.

    Raises EngineAnswerError, naming the question's number, for a row that is missing, not finite, positive,
    heavier than 1 or shorter than K.
    """
    answers: list[Positions | None] = [None] * len(questions)
    queue = iter(range(len(questions)) if order is None else order)
    done = 0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal done
        for index in queue:
            try:
                answers[index] = await _ASK[method](session, endpoint, questions[index], top_k)
            except EngineAnswerError as error:
                raise EngineAnswerError(
                    error.summary,
                    where=f"{error.where} (text {index + 1} of {len(questions)})",
                    found=error.found,
                    expected=error.expected,
                    remedy=error.remedy,
                ) from None
            done += 1
            if progress is not None:
                progress(done, len(questions))

    async with connect(endpoint, timeout_s=timeout_s) as session:
        tasks = [asyncio.ensure_future(work(session)) for _ in range(min(concurrency, len(questions)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return [answer for answer in answers if answer is not None]


def _greedy(endpoint: Endpoint, tokens: Sequence[int], count: int) -> dict[str, Any]:
    return {"model": endpoint.model, "prompt": list(tokens), "max_tokens": count, "temperature": 0}


async def _first_choice(
    session: aiohttp.ClientSession, endpoint: Endpoint, body: dict[str, Any], entries: int
) -> dict[str, Any]:
    """The first choice of an answer, which may be as large as `entries` log-probabilities take, twice over."""
    most = BYTES_BESIDE + 2 * entries * BYTES_AN_ENTRY
    return first_choice(await post_json(session, endpoint, COMPLETIONS, body, max_bytes=most), COMPLETIONS)


async def _ask_prompt(
    session: aiohttp.ClientSession, endpoint: Endpoint, question: Question, top_k: int
) -> Positions:
    body = _greedy(endpoint, question.tokens, 1) | {"prompt_logprobs": top_k}
    choice = await _first_choice(session, endpoint, body, len(question.tokens) * top_k)
    rows = prompt_rows(_present(choice.get("prompt_logprobs")), len(question.tokens))
    return _pack(question, rows[question.start :], top_k)


async def _ask_echo(
    session: aiohttp.ClientSession, endpoint: Endpoint, question: Question, top_k: int
) -> Positions:
    body = _greedy(endpoint, question.tokens, 1)
    body |= {"echo": True, "logprobs": top_k, "return_tokens_as_token_ids": True}
    choice = await _first_choice(session, endpoint, body, len(question.tokens) * top_k)
    rows = legacy_rows(_present(choice.get("logprobs")))
    if rows is None or len(rows) <= 1 < len(
        question.tokens
    ):  # llama.cpp does not know `echo`, and says nothing
        raise _none()
    rows = rows[: len(question.tokens)]
    echoed = [row.token for row in rows]
    if echoed != list(question.tokens):
        raise EngineAnswerError(
            "the echoed prompt is not the prompt",
            where=COMPLETIONS,
            found=f"{len(echoed)} tokens",
            expected=f"the {len(question.tokens)} tokens sent",
        )
    return _pack(question, [row.top for row in rows[question.start :]], top_k)


async def _ask_generation(
    session: aiohttp.ClientSession, endpoint: Endpoint, question: Question, top_k: int
) -> Positions:
    tokens, rows = question.tokens, list[list[Entry]]()
    while len(rows) < len(tokens) - question.start:
        place = question.start + len(rows)
        count = min(GENERATION_BLOCK, len(tokens) - place)
        made = await generate_with_logprobs(session, endpoint, tokens[:place], count, top_k)
        for row, wanted in zip(made, tokens[place:], strict=False):
            rows.append(row.top)
            if row.token != wanted:
                break
    return _pack(question, rows, top_k, actual_required=False)


async def generate_with_logprobs(
    session: aiohttp.ClientSession, endpoint: Endpoint, prompt: Sequence[int], count: int, top_k: int
) -> list[LegacyRow]:
    """What the server says greedily to a prompt, at most `count` tokens, each with its alternatives.

    Raises EngineAnswerError, with the summary NO_LOGPROBS where there are none by token id.
    """
    body = _greedy(endpoint, prompt, count) | {"logprobs": top_k, "return_tokens_as_token_ids": True}
    choice = await _first_choice(session, endpoint, body, count * top_k)
    made = generated_rows(_present(choice.get("logprobs")))
    if not made:
        raise _none()
    return made[:count]


_ASK: dict[Method, Callable[[aiohttp.ClientSession, Endpoint, Question, int], Awaitable[Positions]]] = {
    "prompt_logprobs": _ask_prompt,
    "echo": _ask_echo,
    "generation": _ask_generation,
}


def _none() -> EngineAnswerError:
    return EngineAnswerError(NO_LOGPROBS, where=COMPLETIONS)


def _present(value: Any) -> Any:
    if not value:
        raise _none()
    return value


def _pack(
    question: Question, rows: Sequence[Sequence[Entry]], top_k: int, *, actual_required: bool = True
) -> Positions:
    wanted = question.tokens[question.start :]
    if len(rows) != len(wanted):
        raise EngineAnswerError(
            "log-probabilities are missing",
            where=COMPLETIONS,
            found=f"{len(rows)} positions",
            expected=f"{len(wanted)} positions",
        )
    ids, logprobs, actual = pack(rows, wanted, top_k, actual_required=actual_required)
    return Positions(ids, logprobs, actual, np.asarray(wanted, dtype=np.int64))
