"""Streamed answers of the fake engine, with everything that can be wrong with a stream."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from state import State
from wire import BROKEN, event, until, usage

__all__ = ["Answer", "send"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request will say."""

    number: int
    prompt: list[int] = field(repr=False)
    tokens: list[int] = field(repr=False)
    reason: str
    """finish_reason."""
    body: dict[str, Any] = field(repr=False)
    chat: bool


async def send(state: State, request: web.Request, answer: Answer) -> web.StreamResponse:
    """Streams `answer` chunk by chunk, then its usage."""
    faults = state.told.faults
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    if faults.error_stream_at and answer.number >= faults.error_stream_at:
        await response.prepare(request)
        await event(response, {"error": {"message": BROKEN, "type": "InternalServerError", "code": 500}})
        await response.write(b"data: [DONE]\n\n")
        return response
    async with state.admitted(len(answer.prompt) + len(answer.tokens)):
        await asyncio.sleep(state.prefill_s(answer.prompt))
        await response.prepare(request)
        try:
            await _tokens(state, response, answer)
        except ConnectionResetError:
            return response
    state.generated += len(answer.tokens)
    if (answer.body.get("stream_options") or {}).get("include_usage") and not faults.no_usage:
        counts = usage(
            len(answer.prompt) + faults.wrong_prompt_usage, len(answer.tokens) + faults.wrong_usage
        )
        await event(response, {**state.head(answer.number, chat=answer.chat), "choices": [], "usage": counts})
    await response.write(b"data: [DONE]\n\n")
    state.drop_later(request)
    return response


async def _tokens(state: State, response: web.StreamResponse, answer: Answer) -> None:
    faults, step, tokens = state.told.faults, state.told.faults.chunk_tokens, answer.tokens
    head = state.head(answer.number, chat=answer.chat)
    give_ids = bool(answer.body.get("return_token_ids")) and not faults.no_token_ids
    pace = state.pace_s(answer.prompt)
    if faults.empty_first:
        await event(response, {**head, "choices": [_choice("", [] if give_ids else None, None, answer.chat)]})
    while faults.trickle:
        await response.write(b": ping\n\n")
        await asyncio.sleep(0.02)
    if faults.burst:
        await asyncio.sleep(pace * len(tokens))
        pace = 1e-3
    start = time.perf_counter()
    for at in range(0, len(tokens), step):
        part = tokens[at : at + step]
        await until(start + pace * (at + len(part)))
        other = 1 if faults.text_of_other_ids else 0
        text = "".join(state.voice.pieces[(token + other) % 256 if other else token] for token in part)
        reason = answer.reason if at + step >= len(tokens) else None
        choice = _choice(text, part if give_ids else None, reason, answer.chat)
        if at == 0 and give_ids:
            choice["prompt_token_ids"] = answer.prompt
        await event(response, {**head, "choices": [choice]})
        state.maybe_die(answer.number)
        if faults.hang:
            await asyncio.sleep(3600)


def _choice(text: str, ids: list[int] | None, reason: str | None, chat: bool) -> dict[str, Any]:
    if chat:
        return {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    return choice if ids is None else {**choice, "token_ids": ids}
