"""The address of a running server, and the only way this package talks to one.

A measurement knows a URL and a model's name, never how the server was started. Whatever goes wrong on the
wire becomes an EngineAnswerError that says which route, what was found and what was expected. A server's own
words are left out of it: an error message may quote the prompt, which is hidden. Nor is a redirect followed to
another host: it would take the prompt along, in the request or already in the host's name.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from lowbit_ray.engines.door import Door
from lowbit_ray.engines.foreign_json import parse_foreign
from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.busy import answering

__all__ = [
    "MAX_ANSWER_BYTES",
    "Endpoint",
    "Refusal",
    "connect",
    "first_choice",
    "get_text",
    "parse_object",
    "post_json",
    "raise_for_status",
    "told_count",
    "whole_answer",
    "wire_errors",
]

MAX_ANSWER_BYTES = 2**29
"""Largest whole answer: 2,048 positions of 200 log-probabilities are some 40 MB."""
KNOWN_ERRORS = frozenset(
    "BadRequestError InternalServerError NotFoundError NotImplementedError UnprocessableEntityError "  # noqa: SIM905
    "ServiceUnavailableError TimeoutError exceed_context_size_error invalid_request_error server_error "
    "unavailable_error "
    "not_found_error not_supported_error authentication_error permission_error rate_limit_error".split()
)
"""Types of errors of vLLM, SGLang, llama.cpp and OpenAI."""
KNOWN_CODES = frozenset(str(code) for code in range(400, 600))
LARGEST_COUNT = 2**31
CONNECT_S = 30.0
WHOLE_ANSWER = 10.0
ERROR_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is, and what it calls its model."""

    url: str
    """`http://127.0.0.1:8000`, without a path."""
    model: str
    socket: str | None = None
    """Path of a Unix socket to connect through; the URL then only names the host."""
    door: str | None = None
    """The way into the sandbox that the server is in (`engines/door.py`); the URL holds inside of it."""

    def route(self, path: str) -> str:
        """The whole URL of `path`."""
        return self.url.rstrip("/") + path


class Refusal(EngineAnswerError):
    """The server understood the request and declined it: HTTP 4xx or 501."""


@asynccontextmanager
async def connect(endpoint: Endpoint, *, timeout_s: float) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for one measurement.

    Each request has its own connection: servers drop idle ones (uvicorn after 5 s), and a client that writes
    into one which is just being dropped sees "Server disconnected". `timeout_s` is the longest wait for the
    next byte, WHOLE_ANSWER times as much that for a whole answer: a server may not feed its client for ever.
    """
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise ValueError(f"timeout_s must be finite and positive, got {timeout_s}")
    connector: aiohttp.BaseConnector
    door = Door(endpoint.door) if endpoint.door else None
    if endpoint.socket is not None:
        connector = aiohttp.UnixConnector(endpoint.socket, limit=0, force_close=True)
    elif door is not None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=lambda _: door.take())
    else:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=timeout_s)
    headers = {"Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers, trust_env=False, read_bufsize=2**18
    ) as session:
        try:
            yield session
        finally:
            if door is not None:
                door.close()


async def post_json(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, Any],
    *,
    max_bytes: int = MAX_ANSWER_BYTES,
) -> dict[str, Any]:
    """POSTs `body`; the answer's JSON object.

    Raises Refusal for HTTP 4xx and 501, EngineAnswerError for anything else that is not an object.
    """
    with answering(), wire_errors(path):
        async with (
            whole_answer(session),
            session.post(endpoint.route(path), json=body, allow_redirects=False) as response,
        ):
            await raise_for_status(response, path)
            data = await _read(response, path, max_bytes)
    return parse_object(data, path)


async def get_text(
    session: aiohttp.ClientSession, endpoint: Endpoint, path: str, *, max_bytes: int = 2**24
) -> str | None:
    """GETs `path`; None where the server has no such route (HTTP 404, 405 or 501).

    One redirect within the server is followed: frameworks send `/metrics` to `/metrics/`.
    """
    with wire_errors(path):
        async with whole_answer(session):
            async with session.get(endpoint.route(path), allow_redirects=False) as response:
                moved = _moved_within(response)
                if moved is None:
                    return await _text(response, path, max_bytes)
            async with session.get(moved, allow_redirects=False) as response:
                return await _text(response, path, max_bytes)


def _moved_within(response: aiohttp.ClientResponse) -> URL | None:
    """Where a redirect leads, if it is to the server itself."""
    if not 300 <= response.status < 400 or "Location" not in response.headers:
        return None
    try:
        target = response.url.join(URL(response.headers["Location"]))
        return target if target.origin() == response.url.origin() else None
    except ValueError:
        return None


async def _text(response: aiohttp.ClientResponse, path: str, max_bytes: int) -> str | None:
    if response.status in (404, 405, 501):
        return None
    await raise_for_status(response, path)
    return (await _read(response, path, max_bytes)).decode("utf-8", errors="replace")


def parse_object(data: bytes, path: str) -> dict[str, Any]:
    """A JSON object without an `error` in it."""
    try:
        value = parse_foreign(data)
    except ValueError:
        raise EngineAnswerError(
            "the answer is not JSON", where=path, found=f"{len(data)} bytes", expected="a JSON object"
        ) from None
    if not isinstance(value, dict):
        raise EngineAnswerError(
            "the answer is not an object", where=path, found=type(value).__name__, expected="a JSON object"
        )
    if value.get("error") is not None:
        raise EngineAnswerError("the server answered an error", where=path, found=error_kind(value["error"]))
    return value


def first_choice(answer: Mapping[str, Any], path: str) -> dict[str, Any]:
    """`choices[0]` of a completion; EngineAnswerError where there is none."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise EngineAnswerError("the answer has no choice", where=path, expected="choices[0]")
    return choices[0]


def error_kind(error: object) -> str:
    """What may be repeated of a server's error object: a type and a code that are well known, never its message.

    Any other words could be those of a hidden prompt.
    """
    if not isinstance(error, dict):
        return "an error object"
    words = [str(error.get(key)) for key in ("type", "code")]
    known = [word for word in words if word in KNOWN_ERRORS or word in KNOWN_CODES]
    return " ".join(known) or "an error object"


def told_count(value: object) -> object:
    """A count of a server's as it may be repeated: anything longer could spell a prompt."""
    if value is None:
        return "none"
    credible = type(value) is int and 0 <= value < LARGEST_COUNT
    return value if credible else f"no count ({type(value).__name__})"


def whole_answer(session: aiohttp.ClientSession) -> asyncio.Timeout:
    """The limit on one whole answer, as `connect` promises it; used inside `wire_errors`."""
    return asyncio.timeout(WHOLE_ANSWER * (session.timeout.sock_read or CONNECT_S))


async def raise_for_status(response: aiohttp.ClientResponse, path: str) -> None:
    """Nothing for HTTP 200, otherwise Refusal or EngineAnswerError."""
    if response.status == 200:
        return
    head = await response.content.read(ERROR_BYTES)
    try:
        value = parse_foreign(head)
        kind = error_kind(value.get("error") if isinstance(value, dict) else None)
    except ValueError:
        kind = "no JSON"
    declined = 400 <= response.status < 500 or response.status == 501
    fault, summary = EngineAnswerError, "the server failed"
    if declined:
        fault, summary = Refusal, "the server declined the request"
    elif 300 <= response.status < 400:
        summary = "the server sends the request elsewhere"
    raise fault(
        summary,
        where=path,
        found=f"HTTP {response.status} ({kind})",
        expected="HTTP 200",
    )


class wire_errors:  # noqa: N801 - a context manager that reads as a function
    """Turns what aiohttp raises into EngineAnswerError."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (asyncio.TimeoutError, aiohttp.ServerTimeoutError)):
            raise EngineAnswerError(
                "the server stopped answering",
                where=self.path,
                found="no byte, or no whole answer, within the time limit",
                remedy="Look at the server's log.",
            ) from None
        if isinstance(error, (aiohttp.ClientError, OSError)):
            raise EngineAnswerError(
                "the connection to the server failed",
                where=self.path,
                found=type(error).__name__,
                remedy="Look at the server's log.",
            ) from None


async def _read(response: aiohttp.ClientResponse, path: str, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > max_bytes:
            raise EngineAnswerError(
                "the answer is too large", where=path, found=f"> {max_bytes} bytes", expected=f"≤ {max_bytes}"
            )
        parts.append(part)
    return b"".join(parts)
