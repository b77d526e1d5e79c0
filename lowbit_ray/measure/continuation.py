"""Greedy continuations as token ids: what the anchor says to the KL probe's prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint, connect, first_choice, post_json
from lowbit_ray.measure.stream import COMPLETIONS

__all__ = ["continue_greedily"]

MOST_BYTES = 2**24
"""Of one answer; thousands of tokens take some ten kilobytes."""


async def continue_greedily(
    endpoint: Endpoint,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    concurrency: int,
    timeout_s: float,
) -> list[tuple[int, ...]]:
    """Ids of each prompt's greedy continuation, at most `max_tokens`, an end-of-sequence token included.

    Raises EngineAnswerError where the server returns no ids, none at all, or more than asked for.
    """
    limit = asyncio.Semaphore(concurrency)

    async def one(session: aiohttp.ClientSession, prompt: Sequence[int]) -> tuple[int, ...]:
        body = {
            "model": endpoint.model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "return_token_ids": True,
        }
        async with limit:
            answer = await post_json(session, endpoint, COMPLETIONS, body, max_bytes=MOST_BYTES)
        ids = first_choice(answer, COMPLETIONS).get("token_ids")
        found = ids if isinstance(ids, list) else []
        if not 0 < len(found) <= max_tokens or any(type(token) is not int for token in found):
            raise EngineAnswerError(
                "the continuation has no usable token ids",
                where=f"{COMPLETIONS}: token_ids",
                found=f"{len(found)} ids",
                expected=f"1 to {max_tokens} ids",
                remedy="Serve with a vLLM that knows return_token_ids.",
            )
        return tuple(found)

    async with connect(endpoint, timeout_s=timeout_s) as session:
        tasks = [asyncio.ensure_future(one(session, prompt)) for prompt in prompts]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
