"""Streams that are meant to hurt whoever reads them: an engine in its sandbox, and the code that times a workload."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator

import pytest
from red import start_alone

from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.sandbox import sandbox_support
from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint, connect, post_json
from lowbit_ray.measure.workload import run_workload
from lowbit_ray.rules import Workload

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sandbox_support().user, reason=f"no sandbox: {sandbox_support().reason}"),
]

PLAN = Workload(
    description="two at once",
    input_len=16,
    output_len=16,
    num_prompts=2,
    max_concurrency=2,
    request_rate="inf",
    metric="output_throughput",
    better="higher",
)
PROMPTS = [tuple(range(10, 26)), tuple(range(30, 46))]
TIMEOUT_S = 0.6
"""For the next byte; ten times as much for a whole answer."""


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One engine for all attacks."""
    with start_alone(tmp_path_factory.mktemp("wire"), "cheats.py", "Wire") as engine:
        yield engine


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ("header_bomb", "the connection to the server failed"),
        ("many_headers", "the connection to the server failed|the server stopped answering"),
        ("invalid_text", "not a completion chunk"),
        ("invalid_json", "not a completion chunk"),
        ("deep_json", "not a completion chunk"),
        ("huge_ids", "not a completion chunk"),
        ("endless_stream", "the answer is too large"),
        ("endless_comments", "the answer is too large|the server stopped answering"),
        ("bad_length", "the connection to the server failed"),
        ("silence", "the connection to the server failed"),
        ("stall", "the server stopped answering"),
        ("redirect", "sends the request elsewhere, found HTTP 307"),
        ("spelled_count", r"wrong number of tokens, found no count \(str\)"),
        ("byte_by_byte", "the answer is too large|the server stopped answering"),
    ],
)
def test_an_attack_on_the_wire_is_an_answer_that_is_refused(
    wire: EngineProcess, attack: str, words: str
) -> None:
    endpoint = Endpoint(wire.address, wire.spec.served_name, door=wire.door)
    held, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()

    async def attacked() -> None:
        async with connect(endpoint, timeout_s=5) as session:
            await post_json(session, endpoint, f"/attack/{attack}", {})
        await run_workload(endpoint, "serve", PLAN, PROMPTS, timeout_s=TIMEOUT_S)

    with pytest.raises(EngineAnswerError, match=words):
        asyncio.run(attacked())
    assert time.monotonic() - started < 60 * TIMEOUT_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 200_000, "KiB of ours"
    wire.probe(10)


def test_an_answer_without_end_is_cut_off(
    wire: EngineProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Not a stream but one answer, where two tokens were asked for."""
    folder = tmp_path_factory.mktemp("huge")
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with start_alone(folder, "cheats.py", "HugeLater") as engine:
        endpoint = Endpoint(engine.address, engine.spec.served_name, door=engine.door)
        with pytest.raises(EngineAnswerError, match="the answer is too large"):
            asyncio.run(run_workload(endpoint, "serve", PLAN, PROMPTS, timeout_s=TIMEOUT_S))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 200_000, "KiB of ours"
