"""The load client: a closed loop of streamed completions of exact lengths, one row a request.

At most `concurrency` requests are in flight; the next is sent as one ends. Prompts are token ids, bodies are
built before the clock starts (flight.py runs while it runs) and streams are read after it stops (stream.py),
so the client costs little while it measures. One failed, short or miscounted request fails the whole load: a
mean over the lucky ones would flatter an engine that drops work.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial

import aiohttp

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint, Refusal, first_choice, post_json, told_count
from lowbit_ray.measure.flight import Flights
from lowbit_ray.measure.stream import COMPLETIONS, Row, read_row

__all__ = ["Extensions", "Load", "LoadResult", "Progress", "Prompt", "negotiate", "run_load"]

Prompt = Sequence[int]
"""Token ids."""
Progress = Callable[[int, int], None]
"""Called with (done, in all); of a load, that is tokens."""
BYTES_A_TOKEN = 2**13
BYTES_A_PROMPT_TOKEN = 16
BYTES_BESIDE = 2**20
RIPE = 2
"""Tokens before its end at which a request counts as about to end, where the server sends each in a chunk."""
HONOUR_LENGTH = "Honour `ignore_eos` and `max_tokens`, and say in `usage` how many tokens there were."
TAKE_IDS = "Take the prompt's ids as they are, without tokens of your own."


@dataclass(frozen=True, slots=True)
class Extensions:
    """Request fields beyond OpenAI's that the server accepts."""

    min_tokens: bool = True
    return_token_ids: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """What to send."""

    prompts: Sequence[Prompt] = field(repr=False)
    output_len: int
    """Tokens to generate for each prompt, exactly."""
    concurrency: int
    extensions: Extensions = Extensions()

    def __post_init__(self) -> None:
        if len({tuple(prompt) for prompt in self.prompts}) != len(self.prompts):
            raise ConfigError(
                "two prompts of a workload are the same",
                where="prompts",
                found=f"{len(self.prompts)} prompts with duplicates",
                remedy="Cut them from more text.",
            )
        if not self.prompts or not all(self.prompts) or self.output_len < 1 or self.concurrency < 1:
            raise ConfigError("a load needs prompts, an output length and a concurrency", where="workload")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """All rows, in the order of the prompts."""

    rows: tuple[Row, ...]
    wall_s: float
    """From the first submission to the end of the last answer."""
    client_cpu_s: float
    """CPU time of the client's thread while the clock ran."""
    client_lag_s: float
    """Longest time by which the client woke late: the error of any one moment it noted."""


async def negotiate(session: aiohttp.ClientSession, endpoint: Endpoint, prompt: Prompt) -> Extensions:
    """Finds out by two-token completions which extensions the server accepts; Refusal if it accepts none."""
    refusal: Refusal | None = None
    for ids, minimum in ((True, True), (False, True), (True, False), (False, False)):
        extensions = Extensions(min_tokens=minimum, return_token_ids=ids)
        try:
            body = _fields(endpoint, prompt, 2, extensions)
            answer = await post_json(session, endpoint, COMPLETIONS, body, max_bytes=BYTES_BESIDE)
        except Refusal as error:
            refusal = error
            continue
        returned = isinstance(first_choice(answer, COMPLETIONS).get("token_ids"), list)
        return Extensions(min_tokens=minimum, return_token_ids=ids and returned)
    assert refusal is not None
    raise refusal


async def run_load(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    load: Load,
    progress: Progress | None = None,
    ripe: Callable[[], None] = lambda: None,
) -> LoadResult:
    """Sends every prompt and waits for every answer; calls `ripe` as each is about to end.

    `progress` is told the tokens so far ten times a second, from the start. Raises EngineAnswerError for the
    first request that fails, with its number and reason; requests still in flight are then cancelled.
    """
    bodies = [_body(endpoint, prompt, load) for prompt in load.prompts]
    most = BYTES_BESIDE + BYTES_A_TOKEN * load.output_len + BYTES_A_PROMPT_TOKEN * max(map(len, load.prompts))
    tokens = len(bodies) * load.output_len
    gc.collect()
    cpu = time.thread_time()
    flights = Flights(
        session,
        endpoint.route(COMPLETIONS),
        bodies,
        load.output_len,
        most,
        lambda done: progress and progress(done, tokens),
        ripe_at=max(1, load.output_len - RIPE),
        ripe=ripe,
    )
    workers = min(load.concurrency, len(bodies))
    watch = asyncio.ensure_future(flights.watch())
    try:
        await _all_or_first_error([flights.work(partial(_fault, load)) for _ in range(workers)])
    finally:
        watch.cancel()
    client_cpu_s = time.thread_time() - cpu
    rows = tuple(_row(index, flights, load) for index in range(len(bodies)))
    return LoadResult(rows, max(row.ended_s for row in rows), client_cpu_s, flights.lag_s)


def _fields(endpoint: Endpoint, prompt: Prompt, output_len: int, extensions: Extensions) -> dict[str, object]:
    fields: dict[str, object] = {
        "model": endpoint.model,
        "prompt": list(prompt),
        "max_tokens": output_len,
        "temperature": 0,
        "ignore_eos": True,
    }
    if extensions.min_tokens:
        fields["min_tokens"] = output_len
    if extensions.return_token_ids:
        fields["return_token_ids"] = True
    return fields


def _body(endpoint: Endpoint, prompt: Prompt, load: Load) -> bytes:
    fields = _fields(endpoint, prompt, load.output_len, load.extensions)
    fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(fields, separators=(",", ":")).encode()


def _row(index: int, flights: Flights, load: Load) -> Row:
    try:
        row = read_row(
            index,
            flights.submitted_s[index],
            flights.reads[index],
            ids_expected=load.extensions.return_token_ids,
        )
        _check(row, load)
    except EngineAnswerError as error:
        raise _fault(load, index, error) from None
    return row


def _check(row: Row, load: Load) -> None:
    """Exact lengths by every count there is, and times that can be true."""
    counts = {
        "usage.completion_tokens": (row.completion_tokens, load.output_len),
        "usage.prompt_tokens": (row.prompt_tokens, len(load.prompts[row.index])),
        "token_ids": (None if row.token_ids is None else len(row.token_ids), load.output_len),
    }
    for name, (found, expected) in counts.items():
        if found != expected and not (name == "token_ids" and row.token_ids is None):
            raise EngineAnswerError(
                "the request has the wrong number of tokens",
                where=f"{COMPLETIONS}: {name}",
                found=told_count(found),
                expected=expected,
                remedy=TAKE_IDS if name == "usage.prompt_tokens" else HONOUR_LENGTH,
            )
    if not row.token_times_s:
        raise EngineAnswerError("no chunk of the stream carried a token", where=COMPLETIONS)
    if not (math.isfinite(row.ttft_s) and row.ttft_s > 0 and row.last_s >= row.first_s):
        raise EngineAnswerError(
            "the time to the first token cannot be true",
            where=COMPLETIONS,
            found=row.ttft_s,
            expected="> 0 s",
        )


def _fault(load: Load, index: int, error: EngineAnswerError) -> EngineAnswerError:
    return EngineAnswerError(
        f"request {index + 1} of {len(load.prompts)} failed: {error.summary}",
        where=error.where,
        found=error.found,
        expected=error.expected,
        remedy=error.remedy,
    )


async def _all_or_first_error(works: Sequence[Coroutine[None, None, None]]) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
