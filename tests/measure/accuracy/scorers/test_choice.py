import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowbit_ray.measure.accuracy.items import ChoiceTarget
from lowbit_ray.measure.accuracy.scorers.choice import judge_choice, picked_letter
from lowbit_ray.measure.accuracy.scorers.verdict import Outcome

OPTIONS = ("Rome", "Paris", "Oslo", "Cairo")
TARGET = ChoiceTarget(answer="B", options=OPTIONS)


@pytest.mark.parametrize(
    "text",
    [
        "B", "B.", "(B)", "**B**", "B) Paris", "B: Paris", "B Paris", "The answer is B.", "Answer: (B)",
        "the correct option is B", "Paris", "It is Paris.", "It must be option B, as A is in Italy.",
        "<think>A or C?</think>B", "I pick (B).",
    ],
)  # fmt: skip
def test_the_picked_option_is_understood(text: str) -> None:
    assert judge_choice(TARGET, text) is Outcome.RIGHT


@pytest.mark.parametrize("text", ["A", "C. Oslo", "Rome", "the answer is D"])
def test_another_option_is_wrong(text: str) -> None:
    assert judge_choice(TARGET, text) is Outcome.WRONG


@pytest.mark.parametrize("text", ["", "Rome or Paris", "none of them", "E", "Paris, Rome, Oslo, Cairo"])
def test_an_answer_that_picks_nothing_is_no_answer(text: str) -> None:
    assert judge_choice(TARGET, text) is Outcome.NO_ANSWER


@pytest.mark.parametrize(
    "text",
    ["A city in France: Paris", "The answer is a city in France: Paris", "My choice is a guess: Paris."],
)
def test_the_article_a_is_not_option_a(text: str) -> None:
    assert picked_letter(text, OPTIONS) == "B"


@pytest.mark.parametrize("text", ["the answer is a", "answer: a.", "option (a)", "the answer is A, a city"])
def test_a_small_a_that_stands_alone_is_option_a(text: str) -> None:
    assert picked_letter(text, OPTIONS) == "A"


@given(st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    assert judge_choice(TARGET, text) in Outcome
