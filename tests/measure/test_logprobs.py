"""Log-probabilities from a server: three ways of asking with one answer, and every way to have none."""

import asyncio
from typing import Any

import numpy as np
import pytest
from loads import prompts
from served import Served

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.logprobs import METHODS, Method, Positions, Question, ask, lacks_logprobs, probe

pytestmark = pytest.mark.usefixtures("quick")
TEXTS = [Question((*prompt, *prompt[::-1]), start=5) for prompt in prompts(3, 12)]


def answers(served: Served, method: Method, top_k: int = 20, **fields: Any) -> list[Positions]:
    return asyncio.run(
        ask(served.endpoint, TEXTS, top_k, method=method, concurrency=2, timeout_s=5, **fields)
    )


def found(served: Served, top_k: int = 20) -> Method:
    return asyncio.run(probe(served.endpoint, TEXTS[0].tokens, top_k, timeout_s=5))


@pytest.mark.parametrize("method", METHODS)
def test_each_method_gives_the_models_own_numbers(anchor: Served, method: Method) -> None:
    for question, positions in zip(TEXTS, answers(anchor, method), strict=True):
        rows = anchor.bigram.logprobs[list(question.tokens[4:-1])]
        best = np.argsort(-rows, axis=1, kind="stable")[:, :20]
        assert np.take_along_axis(rows, best, axis=1) == pytest.approx(positions.logprobs, abs=1e-6)
        assert positions.ids.shape == (19, 20)
        known = np.isfinite(positions.actual)
        own = anchor.bigram.score(question.tokens)[4:]
        assert own[known] == pytest.approx(positions.actual[known], abs=1e-6)
        assert known.all() or method == "generation"


@pytest.mark.parametrize("method", METHODS)
def test_all_methods_give_the_same_lists(anchor: Served, method: Method) -> None:
    for one, other in zip(answers(anchor, "prompt_logprobs"), answers(anchor, method), strict=True):
        assert np.array_equal(one.ids, other.ids)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({}, "prompt_logprobs"),
        ({"no_prompt_logprobs": True}, "echo"),
        ({"no_prompt_logprobs": True, "no_echo": True}, "generation"),
        ({"no_prompt_logprobs": True, "ignores_echo": True}, "generation"),
    ],
)
def test_the_strongest_method_is_found(anchor: Served, faults: dict[str, object], expected: Method) -> None:
    assert found(anchor.tell(faults=faults)) == expected


def test_a_server_that_gives_none_is_the_outcome_that_breaks_the_contract(anchor: Served) -> None:
    anchor.tell(faults={"no_logprobs": True})
    with pytest.raises(EngineAnswerError) as caught:
        found(anchor)
    assert lacks_logprobs(caught.value)
    assert "prompt_logprobs: none in the answer; echo: none" in str(caught.value)


def test_text_in_place_of_ids_is_none(anchor: Served) -> None:
    anchor.tell(faults={"no_token_ids": True, "no_prompt_logprobs": True})
    with pytest.raises(EngineAnswerError) as caught:
        found(anchor)
    assert lacks_logprobs(caught.value)


def test_a_limit_below_k_is_none_and_names_the_status(anchor: Served) -> None:
    anchor.tell(faults={"strict_body": True, "no_echo": True})
    with pytest.raises(EngineAnswerError, match="HTTP 400") as caught:
        found(anchor)
    assert lacks_logprobs(caught.value)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan_logprobs", "not finite"),
        ("positive_logprobs", "positive, found 0.25"),
        ("heavy_logprobs", "sum to more than 1"),
        ("missing_row", "a position has no log-probabilities"),
    ],
)
def test_wrong_log_probabilities_are_an_error_of_their_own(anchor: Served, fault: str, words: str) -> None:
    anchor.tell(faults={fault: True})
    with pytest.raises(EngineAnswerError, match=words) as caught:
        found(anchor)
    assert not lacks_logprobs(caught.value)


def test_fewer_than_k_are_refused_and_not_bounded_with_less(anchor: Served) -> None:
    anchor.tell(faults={"few_logprobs": 5})
    with pytest.raises(
        EngineAnswerError, match=r"fewer log-probabilities than asked for, found [56], expected 20"
    ):
        answers(anchor, "prompt_logprobs")


def test_an_error_names_the_text_and_quotes_none_of_it(anchor: Served) -> None:
    anchor.tell(faults={"nan_logprobs": True})
    with pytest.raises(EngineAnswerError, match=r"\(text \d of 3\)"):
        answers(anchor, "prompt_logprobs")


def test_answers_stand_in_the_order_of_the_questions(anchor: Served) -> None:
    straight, shuffled = answers(anchor, "echo"), answers(anchor, "echo", order=[2, 0, 1])
    for one, other in zip(straight, shuffled, strict=True):
        assert np.array_equal(one.actual, other.actual)


def test_generation_asks_once_while_server_and_text_agree(anchor: Served) -> None:
    text = anchor.bigram.greedy(65, 30, forbid=[256])
    question = Question((65, *text), start=1)
    (positions,) = asyncio.run(
        ask(anchor.endpoint, [question], 5, method="generation", concurrency=1, timeout_s=5)
    )
    assert positions.ids[:, 0].tolist() == text
    assert np.isfinite(positions.actual).all()


def test_a_failed_probe_of_a_dead_server_is_not_a_lack_of_log_probabilities(anchor: Served) -> None:
    anchor.tell(faults={"http_500_at": 1})
    with pytest.raises(EngineAnswerError, match="HTTP 500") as caught:
        found(anchor)
    assert not lacks_logprobs(caught.value)


def test_a_server_that_fails_on_one_method_is_asked_by_another(anchor: Served) -> None:
    """The probe's first question is a plain one, so a refusal is about the method."""
    anchor.tell(faults={"no_prompt_logprobs": True})
    assert found(anchor) == "echo"


def test_progress_counts_texts(anchor: Served) -> None:
    seen: list[tuple[int, int]] = []
    answers(anchor, "prompt_logprobs", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
