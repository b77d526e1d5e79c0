import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowbit_ray.measure.accuracy.items import MathsTarget
from lowbit_ray.measure.accuracy.scorers.answer_text import final_number
from lowbit_ray.measure.accuracy.scorers.maths import score_maths
from lowbit_ray.measure.accuracy.scorers.verdict import Case, Outcome


def outcomes(*pairs: tuple[str, str]) -> list[Outcome]:
    return score_maths([Case(MathsTarget(answer=answer), text) for answer, text in pairs])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("12", "12"),
        ("12", "7 + 5 = 12"),
        ("12", "The answer is 12, which took 3 steps."),
        ("12", "**12**"),
        ("12", "so we get \\boxed{12}, not 13"),
        ("12", "<think>maybe 13</think>12"),
        ("1200", "It costs $1,200."),
        ("-4", "The result is −4."),
        ("0.5", "1/2"),
        ("12", "#### 12"),
        ("12", "12.0"),
    ],
)
def test_a_number_is_right_in_any_plain_form(answer: str, text: str) -> None:
    assert outcomes((answer, text)) == [Outcome.RIGHT]


def test_math_verify_reads_latex_and_expressions() -> None:
    assert (
        outcomes(
            ("1/2", "so $\\frac{2}{4}$"),
            ("x^2+1", "$1 + x^2$"),
            ("\\sqrt{8}", "$2\\sqrt{2}$"),
            ("x^2+1", "$1 - x^2$"),
            ("12", "13"),
            ("12", "I do not know."),
        )
        == [Outcome.RIGHT] * 3 + [Outcome.WRONG] * 3
    )


def test_a_number_within_an_expression_is_not_the_expressions_value() -> None:
    """Its last number is the target's, its value is not."""
    wrong = [
        ("4", "so $\\boxed{\\frac{3}{4}}$"),
        ("4", "first \\boxed{4}, no: \\boxed{\\frac{1}{2}}"),
        ("4", "The answer is $\\frac{3}{4}$."),
        ("4", "The answer is $4\\sqrt{2}$."),
        ("2", "The answer is $2^{10}$."),
        ("10", "We get $2^{10}$"),
        ("4", "We get $\\sqrt{4}$, that is $\\sqrt{4}$"),
        ("4", "It is 3 / 4"),
    ]
    assert outcomes(*wrong) == [Outcome.WRONG] * len(wrong)
    right = [
        ("17", "The answer is 12 + 5 = 17."),
        ("3/4", "so $\\boxed{\\frac{3}{4}}$"),
        ("1024", "The answer is $2^{10}$."),
        ("2", "We get $\\sqrt{4}$"),
        ("12", "- 12"),
        ("12", "* 12"),
        ("12", "**The answer is 12**"),
        ("12", "The answer is \\(12\\)."),
        ("12", "It took 12 steps - no more than 12"),
    ]
    assert outcomes(*right) == [Outcome.RIGHT] * len(right)


def test_an_empty_answer_is_no_answer() -> None:
    assert (
        outcomes(("12", " \n"), ("12", "<think>12</think>"), ("12", "<think>12, or"))
        == [Outcome.NO_ANSWER] * 3
    )


def test_an_endless_power_times_out_and_the_cases_after_it_are_judged() -> None:
    started = time.monotonic()
    assert outcomes(("5", "9**9**9**9"), ("1/2", "$\\frac{3}{6}$")) == [Outcome.TIMED_OUT, Outcome.RIGHT]
    assert time.monotonic() - started < 30


def test_a_very_long_number_is_not_converted() -> None:
    started = time.monotonic()
    assert final_number("the answer is " + "7" * 150_000) is None
    assert time.monotonic() - started < 1


def test_odd_texts_are_judged_without_raising() -> None:
    odd = [
        "\0",
        "\ud800",
        "$" * 500,
        "\\boxed{" * 200,
        "\\frac{1}{0}",
        "∞",
        "{" * 3000,
        "1/0",
        "x=" * 900,
    ]
    assert Outcome.RIGHT not in outcomes(*(("12", text) for text in odd))


@settings(max_examples=200, deadline=1000)
@given(st.text(max_size=300))
def test_finding_the_final_number_never_raises(text: str) -> None:
    value = final_number(text)
    assert value is None or value.denominator >= 1
