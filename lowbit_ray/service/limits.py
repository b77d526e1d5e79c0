"""How much one client may ask: token buckets by person or address, and the size and duration of a body."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowbit_ray.service.problems import problem_response

__all__ = ["BodyLimit", "Buckets", "Limits", "Rate"]

KEPT = 20_000
"""Buckets kept at most; the one unused for the longest is forgotten first."""
WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket of `burst` requests, refilled at `per_second`."""

    burst: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the service."""

    reads: Rate = Rate(200, 50)
    """Requests of any kind, of one person or address."""
    writes: Rate = Rate(30, 0.5)
    """Submissions and cancellations of one person."""
    wrong_tokens: Rate = Rate(20, 0.2)
    """Wrong tokens from one address."""
    body_bytes: int = 64 * 1024
    body_seconds: float = 10.0
    """How long a client may take to send its body."""
    followers: int = 8
    """Event streams open at once of one person or address."""
    all_followers: int = 512


class Buckets:
    """Token buckets of one rate, by key; for one event loop."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Takes one token: 0 where there was one, else the seconds until there is one."""
        now = time.monotonic()
        left, at = self._left.pop(key, (self._rate.burst, now))
        left = min(self._rate.burst, left + (now - at) * self._rate.per_second)
        enough = left >= 1
        self._left[key] = (left - 1 if enough else left, now)
        if len(self._left) > KEPT:
            self._left.popitem(last=False)
        return 0.0 if enough else (1 - left) / self._rate.per_second

    def wait_s(self, key: str) -> float:
        """Seconds until there is a token; takes none."""
        left, at = self._left.get(key, (self._rate.burst, 0.0))
        left = min(self._rate.burst, left + (time.monotonic() - at) * self._rate.per_second)
        return 0.0 if left >= 1 else (1 - left) / self._rate.per_second


class BodyLimit:
    """Reads a request's body before the application sees it: no more than the limit, no longer than the time."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in WITH_BODY:
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            await problem_response(408, "The body took too long", close=True)(scope, receive, send)
            return
        if body is None:
            most = f"A body has at most {self._limits.body_bytes} bytes."
            await problem_response(413, "The body is too large", most, close=True)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._limits.body_bytes:
            return None
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self._limits.body_bytes:
                return None
            if not message.get("more_body", False):
                return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, once, then whatever comes: a disconnect."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def seconds(wait: float) -> str:
    """As `Retry-After` wants it."""
    return str(max(1, math.ceil(wait)))
