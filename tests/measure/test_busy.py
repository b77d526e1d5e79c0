"""Seconds in which a server was answering: what is asked at once counts once, and pauses do not count."""

import asyncio
import time

import pytest
from served import Served

from lowbit_ray.measure.busy import answering, busy_seconds
from lowbit_ray.measure.endpoint import Endpoint, connect, post_json


async def ask(endpoint: Endpoint, tokens: int) -> None:
    async with connect(endpoint, timeout_s=20) as session:
        body = {"model": endpoint.model, "prompt": [1, 2, 3], "max_tokens": tokens, "ignore_eos": True}
        await post_json(session, endpoint, "/v1/completions", body)


def test_answers_count_and_pauses_do_not(anchor: Served) -> None:
    async def go() -> float:
        asked = 0.0
        for _ in range(2):
            started = time.perf_counter()
            await ask(anchor.endpoint, 20)
            asked += time.perf_counter() - started
            await asyncio.sleep(0.5)
        return asked

    with busy_seconds() as meter:
        asked = asyncio.run(go())
    assert 0 < meter.seconds <= asked


def test_what_is_asked_at_the_same_time_counts_once(anchor: Served) -> None:
    async def go() -> None:
        await asyncio.gather(*(ask(anchor.endpoint, 20) for _ in range(4)))

    started = time.perf_counter()
    with busy_seconds() as meter:
        asyncio.run(go())
    assert 0 < meter.seconds <= time.perf_counter() - started


def test_a_failed_request_ends_its_time() -> None:
    async def go() -> None:
        with answering():
            raise ConnectionError

    with busy_seconds() as meter, pytest.raises(ConnectionError):
        asyncio.run(go())
    before = meter.seconds
    with busy_seconds() as other:
        pass
    assert meter.seconds == before
    assert other.seconds == 0.0


def test_nothing_is_measured_where_nobody_measures(anchor: Served) -> None:
    with busy_seconds() as meter:
        pass
    asyncio.run(ask(anchor.endpoint, 2))
    assert meter.seconds == 0.0
