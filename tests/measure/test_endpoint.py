"""The wire: every way in which a server can fail to answer becomes one kind of error, in bounded time."""

import asyncio
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.checkpoints import write_anchor
from served import Served, Start

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import (
    Endpoint,
    Refusal,
    connect,
    error_kind,
    get_text,
    parse_object,
    post_json,
)

COMPLETIONS = "/v1/completions"


def post(endpoint: Endpoint, *, timeout_s: float = 5.0, **fields: Any) -> dict[str, Any]:
    body = {"model": endpoint.model, "prompt": [1, 2, 3], "max_tokens": 2, **fields}

    async def go() -> dict[str, Any]:
        async with connect(endpoint, timeout_s=timeout_s) as session:
            return await post_json(session, endpoint, COMPLETIONS, body, max_bytes=2**22)

    return asyncio.run(go())


def test_a_whole_answer_is_an_object(anchor: Served) -> None:
    assert post(anchor.endpoint)["usage"]["completion_tokens"] == 2


def test_a_unix_socket_is_an_address_like_any_other(start_engine: Start, tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    served = start_engine(write_anchor(tmp_path / "model"), "--uds", str(path))
    endpoint = Endpoint("http://engine", "m", str(path))
    assert post(endpoint)["usage"]["completion_tokens"] == 2
    assert served.process.poll() is None


def test_a_declined_request_is_a_refusal_that_names_the_status(anchor: Served) -> None:
    with pytest.raises(Refusal) as caught:
        post(anchor.endpoint, max_tokens=10**6)
    assert "HTTP 400 (BadRequestError 400)" in str(caught.value)


def test_a_server_error_is_no_refusal(anchor: Served) -> None:
    anchor.tell(faults={"http_500_at": 1})
    with pytest.raises(EngineAnswerError) as caught:
        post(anchor.endpoint)
    assert not isinstance(caught.value, Refusal)
    assert "HTTP 500 (InternalServerError 500)" in str(caught.value)


def test_a_silent_server_ends_at_the_timeout(anchor: Served) -> None:
    anchor.tell(faults={"silent": True})
    start = time.monotonic()
    with pytest.raises(EngineAnswerError, match="stopped answering"):
        post(anchor.endpoint, timeout_s=0.3)
    assert time.monotonic() - start < 3


def test_an_endless_answer_is_cut_off(anchor: Served) -> None:
    anchor.tell(faults={"huge_answer": True})
    with pytest.raises(EngineAnswerError, match="too large"):
        post(anchor.endpoint)


def test_no_server_is_a_failed_connection() -> None:
    with pytest.raises(
        EngineAnswerError, match="connection to the server failed, found ClientConnectorError"
    ):
        post(Endpoint("http://127.0.0.1:1", "m"))


def test_a_dropped_keep_alive_connection_is_survived(anchor: Served) -> None:
    """uvicorn closes an idle connection after 5 s: a session that reused connections would fail here."""
    anchor.tell(faults={"drop_keepalive": True})
    body = {"model": "m", "prompt": [1, 2, 3], "max_tokens": 2}

    async def go() -> int:
        async with connect(anchor.endpoint, timeout_s=5) as session:
            for _ in range(3):
                await post_json(session, anchor.endpoint, COMPLETIONS, body)
                await asyncio.sleep(0.03)
        return 3

    assert asyncio.run(go()) == 3


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_session_without_a_finite_timeout_is_refused(timeout_s: float) -> None:
    async def go() -> None:
        async with connect(Endpoint("http://127.0.0.1:1", "m"), timeout_s=timeout_s):
            pass

    with pytest.raises(ValueError, match="finite and positive"):
        asyncio.run(go())


def test_a_route_that_is_not_there_is_none(anchor: Served) -> None:
    async def go() -> str | None:
        async with connect(anchor.endpoint, timeout_s=5) as session:
            return await get_text(session, anchor.endpoint, "/nothing")

    assert asyncio.run(go()) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<html>", "not JSON"),
        (b"[1]", "not an object"),
        (b'{"error": {"message": "secret prompt", "type": "server_error"}}', "server_error"),
        (b'{"error": "secret prompt"}', "an error object"),
    ],
)
def test_what_is_no_answer_says_so(data: bytes, words: str) -> None:
    with pytest.raises(EngineAnswerError, match=words) as caught:
        parse_object(data, COMPLETIONS)
    assert "secret" not in str(caught.value)


def test_a_type_that_quotes_the_prompt_is_not_repeated() -> None:
    assert error_kind({"type": "you sent: hidden words", "code": 400}) == "400"


def test_the_environments_proxy_is_not_used(anchor: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert post(anchor.endpoint)["choices"]


def test_errors_survive_pickling_as_refusals() -> None:
    error = pickle.loads(pickle.dumps(Refusal("no", where="/x", found=1)))
    assert isinstance(error, Refusal)
    assert str(error) == "/x: no, found 1"
