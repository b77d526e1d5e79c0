"""What /metrics says, from real pages and from a running engine."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from loads import prompts
from served import Served

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure import gauges
from lowbit_ray.measure.endpoint import Endpoint, connect
from lowbit_ray.measure.gauges import GaugeWatch, read_gauges
from lowbit_ray.measure.load import Load, run_load


def test_a_real_page_of_0_25_1_is_read(fixtures: Path) -> None:
    read = read_gauges((fixtures / "vllm-0.25.1-h200.metrics").read_text())
    assert (read.kv_usage, read.running, read.prefix_hits, read.queued) == (0.0, 0.0, 0.0, 609.0)


def test_a_real_page_of_the_cpu_build_is_read(fixtures: Path) -> None:
    read = read_gauges((fixtures / "vllm-0.32.0-cpu-smollm2-bf16.metrics").read_text())
    assert read.kv_usage is not None
    assert read.running is not None


def test_engines_are_summed_and_the_fullest_pool_counts() -> None:
    text = (
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n'
        'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4.0\n'
    )
    read = read_gauges(text)
    assert (read.kv_usage, read.running) == (0.5, 7.0)


@pytest.mark.parametrize("name", ["sglang:num_running_reqs", "llamacpp:requests_processing"])
def test_other_servers_tell_their_requests_in_flight(name: str) -> None:
    assert read_gauges(f"# TYPE {name} gauge\n{name} 4\n").running == 4.0


def test_another_metric_whose_name_begins_alike_is_not_read() -> None:
    assert read_gauges('vllm:num_requests_running_by_reason{a="b"} 9\n').running is None


def test_a_value_that_is_no_number_is_an_error() -> None:
    with pytest.raises(EngineAnswerError, match="not a number"):
        read_gauges("vllm:num_requests_running many\n")


def test_a_server_without_metrics_says_nothing(anchor: Served) -> None:
    anchor.tell(faults={"no_metrics": True})

    async def go() -> GaugeWatch:
        async with (
            connect(anchor.endpoint, timeout_s=5) as session,
            GaugeWatch(session, anchor.endpoint, 0.02) as watch,
        ):
            await asyncio.sleep(0.05)
        return watch

    watch = asyncio.run(go())
    assert (watch.kv_usage, watch.running, watch.prefix_hits, watch.mean_queue_ms) == (None, None, None, None)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e308"])
@pytest.mark.parametrize(
    "name", ["vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:prefix_cache_hits_total"]
)
def test_a_value_that_no_record_can_hold_is_the_engines_fault(name: str, value: str) -> None:
    with pytest.raises(EngineAnswerError, match="not a number that can be"):
        read_gauges(f"{name} {value}\n{name} {value}\n")


@pytest.mark.parametrize("kept_bytes", [2**26, 1])
def test_a_pool_in_use_for_a_moment_is_seen_although_the_server_answers_slowly(
    kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readings may be rare in a long workload alone; pages beyond what is kept are read at once."""
    monkeypatch.setattr(gauges, "KEPT_BYTES", kept_bytes)
    began = 0.0

    async def metrics(_: web.Request) -> web.Response:
        await asyncio.sleep(0.03)
        usage = 0.25 if 0.6 < time.monotonic() - began < 0.9 else 0.0
        return web.Response(text=f"vllm:kv_cache_usage_perc {usage}\n")

    async def go() -> tuple[GaugeWatch, int]:
        nonlocal began
        async with (
            serving(web.get("/metrics", metrics)) as endpoint,
            connect(endpoint, timeout_s=5) as session,
        ):
            began = time.monotonic()
            async with GaugeWatch(session, endpoint, 0.5) as watch:
                await asyncio.sleep(1.2)
                kept = len(watch._pages)
        return watch, kept

    watch, kept = asyncio.run(go())
    assert watch.kv_usage == 0.25
    assert (kept == 0) == (kept_bytes == 1)


def test_the_peak_just_before_a_request_ends_is_no_matter_of_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token fills the pool by one more block, the last one frees it; readings by the clock come rarely."""
    monkeypatch.setattr(gauges, "SOON_S", 60.0)
    tokens, used = 30, 0

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=f"vllm:kv_cache_usage_perc {used / tokens}\n")

    async def complete(request: web.Request) -> web.StreamResponse:
        nonlocal used
        answer = web.StreamResponse()
        await answer.prepare(request)
        for number in range(1, tokens + 1):
            used = number
            chunk = {"choices": [{"index": 0, "text": "a", "token_ids": [5]}]}
            await answer.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await asyncio.sleep(0.02)
        used = 0
        usage = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 8 + tokens}
        await answer.write(
            f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()
        )
        return answer

    async def go() -> GaugeWatch:
        routes = (web.get("/metrics", metrics), web.post("/v1/completions", complete))
        load = Load(prompts(2, 8), output_len=tokens, concurrency=1)
        async with (
            serving(*routes) as endpoint,
            connect(endpoint, timeout_s=5) as session,
            GaugeWatch(session, endpoint, poll_s=60) as watch,
        ):
            await run_load(session, endpoint, load, ripe=watch.look)
        return watch

    assert (asyncio.run(go()).kv_usage or 0) >= (tokens - 3) / tokens


@contextlib.asynccontextmanager
async def serving(*routes: web.RouteDef) -> AsyncIterator[Endpoint]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield Endpoint(f"http://{host}:{port}", "lowbit")
    finally:
        await runner.cleanup()
