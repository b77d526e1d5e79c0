"""Whether a server answers: one token, not `/health`.

`/health` stays 200 after vLLM's workers have died, and is up in some servers before the model
is. Only the standard library, and no connection is reused.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from dataclasses import dataclass

from lowbit_ray.engines.door import Door
from lowbit_ray.engines.foreign_json import parse_foreign
from lowbit_ray.errors import EngineAnswerError

__all__ = ["Answer", "ask_health", "ask_one_token"]

PROMPT = [100, 101, 102, 103]
"""Token ids that every vocabulary has; nothing hidden is sent before an engine is timed."""
LIMIT = 2**20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back over HTTP."""

    status: int
    body: bytes


def ask_health(port: int, timeout_s: float, door: str | None = None) -> Answer:
    """GET /health; OSError or http.client.HTTPException if nobody answers. `door` leads into a sandbox."""
    return _ask(port, "GET", "/health", None, timeout_s, door)


def ask_one_token(port: int, model: str, timeout_s: float, door: str | None = None) -> None:
    """Has the server complete a prompt of token ids by one token. `door` leads into a sandbox.

    Raises EngineAnswerError with the status and the first of the body if it does not.
    """
    request = {"model": model, "prompt": PROMPT, "max_tokens": 1, "temperature": 0}
    where = f"http://127.0.0.1:{port}/v1/completions"
    try:
        answer = _ask(port, "POST", "/v1/completions", request, timeout_s, door)
    except (OSError, http.client.HTTPException) as error:
        raise EngineAnswerError("the server does not answer", where=where, found=_name(error)) from None
    try:
        parsed = parse_foreign(answer.body)
    except ValueError:
        parsed = None
    if answer.status != 200 or not _has_a_choice(parsed):
        raise EngineAnswerError(
            "the server does not complete a prompt by one token",
            where=where,
            found=f"status {answer.status}: {answer.body[:200].decode(errors='replace')}",
            expected="status 200 with one choice",
        )


def _has_a_choice(parsed: object) -> bool:
    if not isinstance(parsed, dict) or parsed.get("error"):
        return False
    choices = parsed.get("choices")
    return isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict)


def _ask(port: int, method: str, path: str, body: object, timeout_s: float, door: str | None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        if door is None:
            connection.connect()
        else:
            connection.sock = Door(door).take(1)
            connection.sock.settimeout(timeout_s)
            connection.sock.connect(("127.0.0.1", port))
        # The socket's own timeout starts anew with every byte: a server that drips would never run into it.
        watch = threading.Timer(timeout_s, _hang_up, (connection.sock,))
        watch.daemon = True
        watch.start()
        try:
            headers = {"Connection": "close", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return Answer(response.status, response.read(LIMIT))
        finally:
            watch.cancel()
    finally:
        connection.close()


def _hang_up(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _name(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
