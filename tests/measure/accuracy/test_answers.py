import asyncio
from collections.abc import Callable

import pytest

from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.accuracy.answers import Answer, Answers, score_sides
from lowbit_ray.measure.accuracy.items import Item, items_digest
from lowbit_ray.measure.accuracy.load_items import make_items
from lowbit_ray.measure.accuracy.run import collect_answers
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.tasks import AccuracyPlan, Domain


def answers_to(items: list[Item], *answers: Answer) -> Answers:
    return Answers(items_digest=items_digest(items), answers=answers, wall_s=1.0)


def test_answers_are_judged_without_the_server(make_item: Callable[..., Item]) -> None:
    items = [make_item("a"), make_item("b"), make_item("c")]
    (judged,) = score_sides(
        items,
        answers_to(
            items,
            Answer(item_id=items[0].id, text="yes", completion_tokens=1, finish_reason="stop"),
            Answer(item_id=items[1].id, text="no", completion_tokens=9, finish_reason="length"),
            Answer(item_id=items[2].id, error="HTTP 500"),
        ),
    )
    assert [item.right for item in judged] == [True, False, False]
    assert [item.outcome for item in judged] == ["right", "wrong", None]
    assert [item.truncated for item in judged] == [False, True, False]


def test_answers_to_other_items_are_refused(make_item: Callable[..., Item]) -> None:
    items = [make_item("a")]
    answers = answers_to(items, Answer(item_id=items[0].id, text="yes"))
    with pytest.raises(ConfigError, match="other items"):
        score_sides([make_item("a", wanted="no")], answers)


def test_judged_items_hold_no_text(make_item: Callable[..., Item]) -> None:
    items = [make_item("canary question", wanted="canary answer", name="0")]
    (judged,) = score_sides(items, answers_to(items, Answer(item_id="0", text="canary text")))
    assert "canary" not in judged[0].model_dump_json()


def test_repr_of_answers_shows_no_text(make_item: Callable[..., Item]) -> None:
    items = [make_item("a", name="0")]
    answers = answers_to(items, Answer(item_id="0", text="canary text"))
    assert "canary" not in f"{answers!r} {answers.answers[0]!r}"


def test_generated_items_are_asked_and_judged_end_to_end(chat: Endpoint) -> None:
    domains = dict.fromkeys(
        ("math", "code", "knowledge", "instruction", "retrieval"), Domain(items=4, max_tokens=16)
    )
    plan = AccuracyPlan.model_validate({"domains": domains})
    items = make_items(plan, b"seed", evaluations=1)
    answers = asyncio.run(collect_answers(chat, items, plan, timeout_s=10))
    (judged,) = score_sides(items, Answers.model_validate_json(answers.model_dump_json()))
    assert len(judged) == 20
    assert all(item.outcome is not None for item in judged)


def test_two_sides_are_judged_together_as_they_are_one_by_one(make_item: Callable[..., Item]) -> None:
    items = [make_item("a", name="0"), make_item("b", name="1")]
    sides = [
        answers_to(items, Answer(item_id="0", text="yes"), Answer(item_id="1", error="HTTP 500")),
        answers_to(items, Answer(item_id="0", text="no"), Answer(item_id="1", text="yes")),
    ]
    assert score_sides(items, *sides) == tuple(score_sides(items, side)[0] for side in sides)
    assert [[item.right for item in side] for side in score_sides(items, *sides)] == [
        [True, False],
        [False, True],
    ]
