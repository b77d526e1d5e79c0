"""A server that makes no tokens: it only sends chunks, so that a client's own limits show.

    python benchmarks/null_server.py --port N [--rate 0]

Speaks the streaming part of /v1/completions over bare sockets. Every open stream gets one prepared chunk a tick:
`--rate` ticks a second, or as many as the machine makes (0). Cheap enough that the client is what saturates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from typing import ClassVar

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
MOST_BEHIND = 2**18
"""Bytes a client may be behind before its stream waits."""


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


TOKEN = {
    "index": 0,
    "text": " the",
    "logprobs": None,
    "finish_reason": None,
    "stop_reason": None,
    "token_ids": [278],
}
BASE = {"id": "cmpl-8f6a1b2c3d4e5f60", "object": "text_completion", "created": 1796012429, "model": "m"}
CHUNK = chunked(event({**BASE, "choices": [TOKEN]}))


class Stream(asyncio.Protocol):
    """One connection, one answer."""

    open: ClassVar[set[Stream]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.transport.set_write_buffer_limits(high=MOST_BEHIND)
        self.buffer = b""
        self.left = self.total = self.prompt = 0
        self.paused = False

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if length and len(body) < int(length[1]):
            return
        self.answer(head.split(b" ", 2), body)
        self.buffer = b""

    def answer(self, line: list[bytes], body: bytes) -> None:
        if line[0] == b"GET":
            self.whole({"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 2**20}]})
            return
        fields = json.loads(body)
        self.total = self.left = int(fields.get("max_tokens") or 16)
        prompt = fields.get("prompt")
        self.prompt = len(prompt) if isinstance(prompt, list) else 1
        if not fields.get("stream"):
            self.whole({**BASE, "choices": [{**TOKEN, "finish_reason": "length"}], "usage": self.usage()})
            return
        self.transport.write(HEAD)
        Stream.open.add(self)

    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.total,
            "completion_tokens": self.total,
        }

    def whole(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (len(data), data)
        )
        self.transport.close()

    def tick(self) -> None:
        if self.paused:
            return
        if self.left:
            self.left -= 1
            self.transport.write(CHUNK)
            return
        end = event({**BASE, "choices": [], "usage": self.usage()}) + b"data: [DONE]\n\n"
        self.transport.write(chunked(end) + b"0\r\n\r\n")
        self.transport.close()
        Stream.open.discard(self)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        Stream.open.discard(self)


async def serve(port: int, rate: float) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(Stream, "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    due = time.perf_counter()
    while True:
        for stream in tuple(Stream.open):
            stream.tick()
        due = max(due + (1 / rate if rate else 0), time.perf_counter() - 0.1) if rate else time.perf_counter()
        await asyncio.sleep(max(0.0, due - time.perf_counter()) if rate or Stream.open else 0.001)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0.0)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.port, arguments.rate))
