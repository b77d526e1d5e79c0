"""Hidden prompts and answers stay out of errors, reprs and public results: planted canaries are looked for."""

import asyncio
from typing import Any

import pytest
from loads import load, prompts, time_workload
from served import Served

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.kl import make_reference
from lowbit_ray.measure.load import Load
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
