"""What the fake engine puts on the wire: errors, usage, events, and connections that are cut."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from aiohttp import web

__all__ = ["endless", "error", "event", "refusal", "until", "usage", "whole"]

BROKEN = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def error(status: int, kind: str, message: str = BROKEN) -> web.Response:
    body = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return web.json_response(body, status=status)


def refusal(message: str) -> web.Response:
    return error(400, "BadRequestError", message)


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


async def event(response: web.StreamResponse, value: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


async def until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.perf_counter()))


def whole(answer: dict[str, Any]) -> web.Response:
    return web.Response(text=json.dumps(answer), content_type="application/json")


async def endless(request: web.Request) -> web.StreamResponse:
    """An answer that never ends."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b'{"choices": [{"text": "')
    while True:
        await response.write(b"x" * 2**20)
