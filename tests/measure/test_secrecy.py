"""Hidden prompts and answers stay out of errors, reprs and public results: planted canaries are looked for."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from answering import answering, streaming
from loads import load, prompts, time_workload
from served import Served

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.endpoint import Endpoint, connect, get_text
from lowbit_ray.measure.kl import make_reference
from lowbit_ray.measure.load import Extensions, Load, LoadResult, run_load
from lowbit_ray.measure.logprobs import Question, ask, probe
from lowbit_ray.measure.workload import WarmUp
from lowbit_ray.tasks import KLPlan

CANARY = tuple(b"canary in the prompt")
"""Spelled, and as the list of numbers that a repr would show."""
SPELLED = ("canary", "99, 97, 110, 97, 114, 121", "99,97,110,97,114,121")


def canaries(count: int) -> list[tuple[int, ...]]:
    return [(number, *CANARY, *prompt) for number, prompt in enumerate(prompts(count, 8))]


def leaks(value: object) -> bool:
    return any(word in text for text in (str(value), repr(value)) for word in SPELLED)


@pytest.mark.parametrize(
    "faults",
    [
        {"short": 1},
        {"http_500_at": 2},
        {"error_stream_at": 2},
        {"no_usage": True},
        {"hang": True},
    ],
)
def test_no_error_of_a_load_quotes_a_prompt(anchor: Served, faults: dict[str, Any]) -> None:
    anchor.tell(faults=faults)
    with pytest.raises(EngineAnswerError) as caught:
        load(anchor.endpoint, sent=canaries(4), timeout_s=0.5)
    assert not leaks(caught.value)


def test_a_server_that_quotes_the_prompt_in_its_error_is_not_repeated(anchor: Served) -> None:
    """A token out of the vocabulary: the fake answers as vLLM does, prompt and all."""
    with pytest.raises(EngineAnswerError) as caught:
        load(anchor.endpoint, sent=[(*CANARY[:6], 999), (*CANARY, 1000)])
    assert "HTTP 400" in str(caught.value)
    assert not leaks(caught.value)


@pytest.mark.parametrize("fault", ["nan_logprobs", "positive_logprobs", "heavy_logprobs", "missing_row"])
def test_no_error_of_log_probabilities_quotes_a_text(anchor: Served, fault: str) -> None:
    anchor.tell(faults={fault: True})
    texts = [Question(text, 3) for text in canaries(2)]
    with pytest.raises(EngineAnswerError) as caught:
        asyncio.run(ask(anchor.endpoint, texts, 5, method="prompt_logprobs", concurrency=1, timeout_s=5))
    assert not leaks(caught.value)
    with pytest.raises(EngineAnswerError) as caught:
        asyncio.run(probe(anchor.endpoint, texts[0].tokens, 5, timeout_s=5))
    assert not leaks(caught.value)


def test_what_is_passed_around_hides_its_texts(anchor: Served) -> None:
    timed = time_workload(anchor.endpoint)
    plan = KLPlan(sequences=2, prompt_len=8, max_tokens=4, top_k=5, max_concurrency=2)
    said = asyncio.run(make_reference(anchor.endpoint, canaries(2), plan, timeout_s=5))
    hidden = [
        Load(prompts=canaries(2), output_len=2, concurrency=1),
        WarmUp(canaries(2)),
        Question(canaries(1)[0], 3),
        said,
        said.positions,
        timed.outputs[0].model_copy(update={"prompt": CANARY, "text": "canary", "token_ids": CANARY}),
    ]
    assert not any(leaks(value) for value in hidden)


def test_the_public_part_of_a_run_holds_no_token(anchor: Served) -> None:
    timed = time_workload(anchor.endpoint)
    public = timed.run.model_dump_json()
    for output in timed.outputs:
        assert output.text not in public
        assert str(list(output.prompt))[1:-1] not in public


async def send(endpoint: Endpoint) -> LoadResult:
    plan = Load(canaries(2), output_len=4, concurrency=1, extensions=Extensions(False, False))
    async with connect(endpoint, timeout_s=5) as session:
        return await run_load(session, endpoint, plan)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_prompt_follows_no_redirect(status: int) -> None:
    """To another host it would go there; into its name it can be written, and looking that up tells it as well."""
    told: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        told.append(await request.text())
        return web.json_response({"choices": [{"text": ""}]})

    async def go() -> None:
        async with answering(elsewhere) as other:

            async def here(request: web.Request) -> web.Response:
                return web.Response(status=status, headers={"Location": other.route(request.path)})

            async with answering(here) as endpoint:
                with pytest.raises(
                    EngineAnswerError, match=f"sends the request elsewhere, found HTTP {status}"
                ):
                    await send(endpoint)
                with pytest.raises(EngineAnswerError, match="sends the request elsewhere"):
                    await probe(endpoint, canaries(1)[0], 5, timeout_s=5)
                async with connect(endpoint, timeout_s=5) as session:
                    with pytest.raises(EngineAnswerError, match="sends the request elsewhere"):
                        await get_text(session, endpoint, "/metrics")

    asyncio.run(go())
    assert told == []


def test_metrics_may_stand_one_slash_further_on_the_same_server() -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/metrics/":
            return web.Response(text="up 1")
        return web.Response(status=307, headers={"Location": str(request.url.with_path("/metrics/"))})

    async def go() -> str | None:
        async with answering(handler) as endpoint, connect(endpoint, timeout_s=5) as session:
            return await get_text(session, endpoint, "/metrics")

    assert asyncio.run(go()) == "up 1"


@pytest.mark.parametrize(
    "said",
    [
        "canary in the prompt",
        list(CANARY),
        {"canary": 1},
        int.from_bytes(CANARY),
        -int.from_bytes(CANARY),
        1.5,
        True,
    ],
)
def test_a_count_that_spells_a_prompt_is_not_repeated(said: Any) -> None:
    event = json.dumps(
        {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 28, "completion_tokens": said}}
    )

    async def go() -> None:
        async with answering(streaming(event)) as endpoint:
            await send(endpoint)

    with pytest.raises(EngineAnswerError, match=r"wrong number of tokens, found no count \(\w+\)") as caught:
        asyncio.run(go())
    assert not leaks(caught.value)
    assert str(int.from_bytes(CANARY)) not in str(caught.value)
