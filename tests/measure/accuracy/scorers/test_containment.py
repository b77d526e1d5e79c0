import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowbit_ray.measure.accuracy.items import ContainmentTarget
from lowbit_ray.measure.accuracy.scorers.containment import judge_containment
from lowbit_ray.measure.accuracy.scorers.verdict import Outcome

TARGET = ContainmentTarget(any_of=("4821", "New Delhi"), none_of=("1111",))


@pytest.mark.parametrize("text", ["4821", "The code is 4821.", "new  delhi", "'4821'"])
def test_a_text_that_holds_the_wanted_one_is_right(text: str) -> None:
    assert judge_containment(TARGET, text) is Outcome.RIGHT


@pytest.mark.parametrize("text", ["48210", "482 1", "4822", "New Delhis"])
def test_a_part_of_a_longer_word_does_not_count(text: str) -> None:
    assert judge_containment(TARGET, text) is Outcome.WRONG


def test_listing_a_distractor_too_is_wrong() -> None:
    assert judge_containment(TARGET, "4821 or 1111") is Outcome.WRONG


def test_an_empty_answer_is_no_answer() -> None:
    assert judge_containment(TARGET, " ") is Outcome.NO_ANSWER


@given(st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    assert judge_containment(TARGET, text) in Outcome
