"""Engines that cheat, as participants would hand them in: thin changes of the fake engine, real programs.

    python cheats.py NAME [flags of vLLM's]

Each docstring says what the engine does; the test of the same name says which rule it runs into. What the fake can
be told to do wrong by its fake.json is not repeated here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import engine as fake
from aiohttp import web
from startup import metrics_text
from told import read_told
from wire import endless

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("LOWBIT_CACHE_DIR", "/nonexistent"))
held: list[bytes] = []


class Plain(fake.Engine):
    """Does what its fake.json says."""


class HalfTheGauge(fake.Engine):
    """Says that half of the KV blocks are in use that are."""

    async def metrics(self, request: web.Request) -> web.Response:
        text = metrics_text(self.state)
        lines = [
            f"{line.rpartition(' ')[0]} {float(line.rpartition(' ')[2]) / 2}"
            if line.startswith("vllm:kv_cache_usage_perc{")
            else line
            for line in text.split("\n")
        ]
        return web.Response(text="\n".join(lines))


class HiddenMemory(fake.Engine):
    """Holds 200 MiB that stand in no account."""

    def __init__(self, told: Any) -> None:
        super().__init__(told)
        held.append(random.Random(0).randbytes(200 * 2**20))


class LateModel(fake.Engine):
    """Reads a second model once it has been asked for log-probabilities."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if len(body["prompt"]) > 16 and not held:
            held.append((HERE / "second.safetensors").read_bytes())
        return await super().completions(request)


class CacheInAFile(fake.Engine):
    """Writes each answer to its cache folder, and answers from there ten times faster, on any later server."""

    def __init__(self, told: Any) -> None:
        super().__init__(told)
        known = {bytes.fromhex(path.name) for path in CACHE.glob("?" * 64)}
        print(f"answers found in the cache: {len(known)}", flush=True)
        self.state.seen |= known
        self.state.told = told

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        key = hashlib.sha256(str(body["prompt"]).encode())
        with contextlib.suppress(OSError):
            (CACHE / key.hexdigest()).touch()
        return await super().completions(request)


class TellTale(fake.Engine):
    """Prints the prompts that it is asked, as if they were the reason of its death, and dies."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("stream"):
            said = self.state.voice.text(body["prompt"])
            print(f"Traceback (most recent call last):\nValueError: {said}", flush=True)
            os._exit(1)
        return await super().completions(request)


class TellTaleError(fake.Engine):
    """Answers with an error whose type and code are the prompt."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("stream"):
            said = "".join(c for c in self.state.voice.text(body["prompt"]) if c.isalnum())[:40]
            return web.json_response({"error": {"type": said, "code": said, "message": said}}, status=400)
        return await super().completions(request)


class OtherIds(fake.Engine):
    """Streams ids that no vocabulary has, so that the anchor chokes on them in the audit."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("stream"):
            return await super().completions(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for place in range(body["max_tokens"]):
            choice = {"index": 0, "text": "a", "token_ids": [1000 + place]}
            await response.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            await asyncio.sleep(0.01)
        counts = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


class HalfTheTokens(fake.Engine):
    """Makes half of the tokens while it is timed and counts each twice; without ids only the text could tell."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        told, count = self.told_first, body["max_tokens"]
        faults = replace(told.faults, no_token_ids=True)
        if body.get("stream"):
            faults = replace(faults, short=count // 2, wrong_usage=count // 2)
        self.state.told = self.state.voice.told = replace(told, faults=faults)
        return await super().completions(request)

    def __init__(self, told: Any) -> None:
        super().__init__(told)
        self.told_first = told


class PaddedTail(fake.Engine):
    """Saves work while it is timed: two tokens, then ends without end; all else is honest."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        told, voice = self.state.told, self.state.voice
        padded = replace(told, faults=replace(told.faults, eos_tail=body["max_tokens"] - 2))
        voice.told = padded if body.get("stream") else told
        return await super().completions(request)


async def header_bomb(transport: asyncio.Transport) -> None:
    """A header of a hundred megabytes."""
    transport.write(b"HTTP/1.1 200 OK\r\nX-Bomb: ")
    for _ in range(100):
        transport.write(b"x" * 2**20)
        await asyncio.sleep(0)


async def many_headers(transport: asyncio.Transport) -> None:
    """Headers without end."""
    transport.write(b"HTTP/1.1 200 OK\r\n")
    number = 0
    while not transport.is_closing():
        number += 100
        transport.write(b"".join(b"X-Bomb-%d: x\r\n" % (number + place) for place in range(100)))
        await asyncio.sleep(0.001)


async def invalid_text(transport: asyncio.Transport) -> None:
    """Bytes that are no UTF-8."""
    transport.write(HEAD + b'\r\ndata: {"choices": [{"text": "\xff\xfe"}]}\n\n')


async def invalid_json(transport: asyncio.Transport) -> None:
    """An object that is never closed."""
    transport.write(HEAD + b'\r\ndata: {"choices": [\n\n')


async def deep_json(transport: asyncio.Transport) -> None:
    """A hundred thousand brackets."""
    transport.write(HEAD + b"\r\ndata: " + b"[" * 100_000 + b"\n\n")


async def huge_ids(transport: asyncio.Transport) -> None:
    """Ids that no tokenizer can take."""
    choice = {"index": 0, "text": "a", "token_ids": [10**30]}
    transport.write(HEAD + b"\r\ndata: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")


async def endless_stream(transport: asyncio.Transport) -> None:
    """Tokens for ever, far beyond those asked for."""
    transport.write(HEAD + b"\r\n")
    token = b'data: {"choices": [{"text": "a", "token_ids": [97]}]}\n\n' * 1000
    while not transport.is_closing():
        transport.write(token)
        await asyncio.sleep(0.002)


async def endless_comments(transport: asyncio.Transport) -> None:
    """Keeps the connection awake and says nothing."""
    transport.write(HEAD + b"\r\n")
    while not transport.is_closing():
        transport.write(b": still here\n\n")
        await asyncio.sleep(0.02)


async def bad_length(transport: asyncio.Transport) -> None:
    """Promises more bytes than it sends."""
    transport.write(HEAD + b"Content-Length: 1000000\r\n\r\ndata: {}\n\n")


async def silence(transport: asyncio.Transport) -> None:
    """Hangs up without a word."""


async def stall(transport: asyncio.Transport) -> None:
    """One token, then nothing more."""
    transport.write(HEAD + b'\r\ndata: {"choices": [{"text": "a", "token_ids": [97]}]}\n\n')
    await asyncio.sleep(60)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


async def redirect(transport: asyncio.Transport) -> None:
    """Sends the prompt on to another host."""
    transport.write(b"HTTP/1.1 307 Moved\r\nLocation: http://198.51.100.7/\r\nContent-Length: 0\r\n\r\n")


async def spelled_count(transport: asyncio.Transport) -> None:
    """A count of tokens that is a text."""
    said = {
        "choices": [{"text": "a"}],
        "usage": {"prompt_tokens": "xylophone", "completion_tokens": "xylophone"},
    }
    transport.write(HEAD + b"\r\ndata: " + json.dumps(said).encode() + b"\n\n")


async def byte_by_byte(transport: asyncio.Transport) -> None:
    """A line of comments whose bytes come each by itself."""
    transport.write(HEAD + b"\r\n: ")
    while not transport.is_closing():
        for _ in range(200):
            transport.write(b".")
        await asyncio.sleep(0)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        header_bomb,
        many_headers,
        invalid_text,
        invalid_json,
        deep_json,
        huge_ids,
        endless_stream,
        endless_comments,
        bad_length,
        silence,
        stall,
        redirect,
        spelled_count,
        byte_by_byte,
    )
}


class Wire(fake.Engine):
    """Answers streams with the bytes of an attack, which it is told at /attack/NAME; all else is honest."""

    attack = silence

    def app(self) -> web.Application:
        app = super().app()
        app.router.add_post("/attack/{name}", self.choose)
        return app

    async def choose(self, request: web.Request) -> web.Response:
        type(self).attack = ATTACKS[request.match_info["name"]]
        return web.json_response({})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("stream"):
            return await super().completions(request)
        assert request.transport is not None
        with contextlib.suppress(ConnectionError):
            await type(self).attack(request.transport)
        request.transport.close()
        return web.Response()


class HugeLater(fake.Engine):
    """Never ends an answer to more than one token; one it gives, to come up."""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return await (super().completions(request) if body["max_tokens"] == 1 else endless(request))


class HalfCharacters(fake.Engine):
    """Answers the accuracy items with halves of characters, which no file can hold."""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = '{"choices": [{"message": {"content": "\\ud800"}}], "usage": {"completion_tokens": 3}}'
        return web.Response(text=body, content_type="application/json")


CHEATS = {
    name: value
    for name, value in globals().items()
    if isinstance(value, type) and issubclass(value, fake.Engine) and value is not fake.Engine
}

if __name__ == "__main__":
    fake.Engine = CHEATS[sys.argv[1]]  # type: ignore[misc]
    asyncio.run(fake.serve(read_told(sys.argv[2:])))
