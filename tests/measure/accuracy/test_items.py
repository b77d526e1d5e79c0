import pytest
from pydantic import ValidationError

from lowbit_ray.measure.accuracy.items import Item, items_digest

ITEM = {
    "id": "math-0",
    "domain": "math",
    "messages": [{"role": "user", "content": "canary-question"}],
    "target": {"scorer": "maths", "answer": "canary-answer"},
    "cluster": "math-0",
}


def test_an_item_survives_json() -> None:
    item = Item.model_validate(ITEM)
    assert Item.model_validate_json(item.model_dump_json()) == item


def test_the_target_says_which_scorer_decides() -> None:
    assert Item.model_validate(ITEM).scorer == "maths"


def test_repr_shows_neither_question_nor_answer() -> None:
    item = Item.model_validate(ITEM)
    assert "canary" not in f"{item!r} {item} {item.messages!r} {item.target!r}"


@pytest.mark.parametrize("field", ["messages", "target", "domain", "chance"])
def test_a_validation_error_does_not_quote_the_value(field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Item.model_validate({**ITEM, field: "canary-value"})
    assert field in str(caught.value)
    assert "canary" not in str(caught.value)


def test_the_digest_depends_on_order_and_content() -> None:
    first = Item.model_validate(ITEM)
    second = Item.model_validate({**ITEM, "id": "math-1"})
    assert items_digest([first, second]) != items_digest([second, first])
    assert items_digest([first]) != items_digest([first.model_copy(update={"chance": 0.5})])
    assert items_digest([first]) == items_digest([Item.model_validate(ITEM)])
