import asyncio
import json
import time
from collections.abc import Callable

import pytest

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.accuracy.answers import Answers
from lowbit_ray.measure.accuracy.items import Item
from lowbit_ray.measure.accuracy.run import SETTLE_S, collect_answers
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.tasks import AccuracyPlan, Domain

PLAN = AccuracyPlan(domains={"retrieval": Domain(items=1, max_tokens=16)}, max_concurrency=4)


def collect(endpoint: Endpoint, *items: Item, timeout_s: float = 5, **arguments: bool) -> Answers:
    return asyncio.run(
        collect_answers(endpoint, items, PLAN, timeout_s=timeout_s, template_arguments=arguments or None)
    )


def test_answers_come_in_the_order_of_the_items(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    answers = collect(chat, *(make_item(f"say: word {n}") for n in range(20)))
    assert [answer.text for answer in answers.answers] == [f"word {n}" for n in range(20)]
    assert {answer.completion_tokens for answer in answers.answers} == {2}
    assert not any(answer.error for answer in answers.answers)


def test_progress_counts_the_answers(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    told: list[tuple[int, int]] = []
    items = [make_item(f"say: word {n}") for n in range(3)]

    def note(answered: int, total: int) -> None:
        told.append((answered, total))

    asyncio.run(collect_answers(chat, items, PLAN, timeout_s=5, progress=note))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_the_request_is_greedy_and_bounded(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    (answer,) = collect(chat, make_item("body")).answers
    assert json.loads(answer.text) == {"max_tokens": 16, "model": "fake", "stream": False, "temperature": 0}


def test_template_arguments_are_sent_where_given(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    (answer,) = collect(chat, make_item("body"), enable_thinking=False).answers
    assert json.loads(answer.text)["chat_template_kwargs"] == {"enable_thinking": False}


def test_so_many_requests_are_in_flight_as_planned(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    answers = collect(chat, *(make_item("busy", name=str(n)) for n in range(12)))
    assert max(int(answer.text) for answer in answers.answers) == PLAN.max_concurrency


def test_the_finish_reason_tells_a_cut_answer(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    answers = collect(chat, make_item("length: half an"), make_item("say: whole"))
    assert [answer.finish_reason for answer in answers.answers] == ["length", "stop"]


def test_no_content_is_an_empty_answer(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    (answer,) = collect(chat, make_item("null")).answers
    assert answer.error is None
    assert answer.text == ""


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("fail", "HTTP 500"),
        ("decline", "HTTP 400"),
        ("drop", "connection"),
        ("array", "not an object"),
        ("not json", "not JSON"),
        ("no choices", "choices"),
        ("no usage", "usage.completion_tokens"),
        ("many tokens", "not credible"),
        ("spelled tokens", r"not credible, found no count (int)"),
        ("endless", "the answer is too large"),
        ("false tokens", "usage.completion_tokens"),
    ],
)
def test_a_failed_request_is_recorded_without_any_text(
    fault: str, reason: str, chat: Endpoint, make_item: Callable[..., Item]
) -> None:
    bad, good = collect(chat, make_item(f"{fault}: canary", name="bad"), make_item("say: yes")).answers
    assert bad.error is not None
    assert reason in bad.error
    assert "canary" not in bad.model_dump_json()
    assert good.error is None


def test_a_request_that_fails_once_is_asked_again(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    dropped, _ = collect(chat, make_item("drop once 1: back"), make_item("say: yes")).answers
    assert (dropped.text, dropped.error) == ("back", None)


def test_a_server_that_hangs_costs_the_time_limit_twice(
    chat: Endpoint, make_item: Callable[..., Item]
) -> None:
    started = time.monotonic()
    hung, _ = collect(chat, make_item("hang"), make_item("say: yes"), timeout_s=0.5).answers
    assert hung.error is not None
    assert "time limit" in hung.error or "no reply" in hung.error
    assert time.monotonic() - started < 3 + SETTLE_S


def test_a_server_that_only_hangs_is_given_up(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    started = time.monotonic()
    # and the reason is that of the first failure, not that the others were not asked any more
    with pytest.raises(EngineAnswerError, match=r"none of the accuracy items, found .*(no reply|time limit)"):
        collect(chat, *(make_item("hang", name=str(n)) for n in range(100)), timeout_s=0.3)
    assert time.monotonic() - started < 3  # 100 items would take 7.5 s a pass


def test_a_server_that_answers_nothing_is_an_engine_error(
    chat: Endpoint, make_item: Callable[..., Item]
) -> None:
    items = [make_item(f"fail: canary {n}") for n in range(3)]
    with pytest.raises(EngineAnswerError, match="none of the accuracy items") as caught:
        collect(chat, *items)
    assert "canary" not in str(caught.value)


def test_a_dead_server_is_an_engine_error(make_item: Callable[..., Item]) -> None:
    with pytest.raises(EngineAnswerError, match="connection"):
        collect(Endpoint(url="http://127.0.0.1:9", model="fake"), make_item("say: yes"))


def test_answers_survive_json(chat: Endpoint, make_item: Callable[..., Item]) -> None:
    answers = collect(
        chat, make_item("say: yes ✓ \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"))
    )
    assert Answers.model_validate_json(answers.model_dump_json()) == answers
