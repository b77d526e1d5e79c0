"""Engines that are unusual and honest, as participants would hand them in: each is to get its score.

python honest.py NAME [flags of vLLM's]
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import engine as fake
from aiohttp import web
from told import Told, read_told


class NotVllm(fake.Engine):
    """No accounts and no metrics: another server altogether, measured by the device."""

    async def metrics(self, request: web.Request) -> web.Response:
        raise web.HTTPNotFound

    async def version(self, request: web.Request) -> web.Response:
        raise web.HTTPNotFound


class NoMinTokens(fake.Engine):
    """Does not know min_tokens, and says so."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        if "min_tokens" in await request.json():
            return web.json_response({"error": {"type": "invalid_request_error"}}, status=400)
        return await super().completions(request)


class OddChunks(fake.Engine):
    """Events with other line ends, cut anywhere, between comments, with fields that nobody asked for."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("stream"):
            return await super().completions(request)
        prompt, state = body["prompt"], self.state
        tokens, _ = state.voice.generate(prompt, body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Odd": "yes"})
        async with state.admitted(len(prompt) + len(tokens)):
            await response.prepare(request)
            await response.write(b": hello\r\n\r\nretry: 1\r\n\r\n")
            for place, token in enumerate(tokens):
                await asyncio.sleep(state.pace_s([place]))
                choice = {"index": 0, "text": state.voice.pieces[token], "token_ids": [token], "odd": [None]}
                data = b"data:" + json.dumps({"choices": [choice], "extra": {}}).encode() + b"\r\n\r\n"
                cut = 1 + place % (len(data) - 1)
                await response.write(data[:cut])
                await response.write(data[cut:])
            counts = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens), "cost": 0.0}
            await response.write(b"event: usage\r\ndata: " + json.dumps({"usage": counts}).encode())
        return response


class SeveralProcesses(fake.Engine):
    """A server with helpers: a child, a grandchild in a session of its own, one that has lost its parent."""

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        sleep = [sys.executable, "-c", "import time; time.sleep(3600)"]
        subprocess.Popen(sleep)
        subprocess.Popen(sleep, start_new_session=True)
        if not os.fork():
            subprocess.Popen(sleep, start_new_session=True)
            os._exit(0)
        os.wait()


HONEST: dict[str, Any] = {
    "NotVllm": NotVllm,
    "NoMinTokens": NoMinTokens,
    "OddChunks": OddChunks,
    "SeveralProcesses": SeveralProcesses,
    "Plain": fake.Engine,
}

if __name__ == "__main__":
    fake.Engine = HONEST[sys.argv[1]]  # type: ignore[misc]
    if sys.argv[1] == "NotVllm":
        fake.startup_lines = lambda told: ([], ["a server of one's own"])
    asyncio.run(fake.serve(read_told(sys.argv[2:])))
