from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowbit_ray.measure.accuracy.items import Constraint, ConstraintKind, InstructionTarget
from lowbit_ray.measure.accuracy.scorers.instructions import CHECKS, holds, judge_instructions
from lowbit_ray.measure.accuracy.scorers.verdict import Outcome


@pytest.mark.parametrize(
    ("kind", "text", "count", "kept", "broken"),
    [
        ("exactly", "sun", 0, '"Sun."', "the sun"),
        ("contains", "cat", 0, "A Cat sat.", "A category."),
        ("excludes", "e", 0, "Rain is good.", "Tea"),
        ("starts_with", "Guitar", 0, "Guitars play.", "A guitar."),
        ("ends_with", "!", 0, "Rain!", "Rain! "  "now"),
        ("repeats", "tea", 3, "tea tea tea", "tea tea"),
        ("words_at_most", "", 3, "one two-fold three", "a b c d"),
        ("words_at_least", "", 3, "a b c", "a b"),
        ("words_exactly", "", 4, "It isn't so bad.", "It is"),
        ("lines_exactly", "", 2, "a\n\nb", "a"),
        ("bullets_exactly", "", 2, "- a\n* b", "- a"),
        ("commas_exactly", "", 0, "a b", "a, b"),
        ("lowercase", "", 0, "a dog.", "A dog."),
        ("uppercase", "", 0, "A DOG.", "A dog."),
        ("json_keys", "name, age", 0, '```json\n{"age": 1, "name": 2}\n```', '{"name": 1}'),
    ],
)  # fmt: skip
def test_a_constraint_holds_or_is_broken(
    kind: ConstraintKind, text: str, count: int, kept: str, broken: str
) -> None:
    constraint = Constraint(kind=kind, text=text, count=count)
    assert holds(constraint, kept)
    assert not holds(constraint, broken)


def test_every_kind_has_a_check() -> None:
    assert set(CHECKS) == set(get_args(ConstraintKind))


def test_all_constraints_must_hold() -> None:
    target = InstructionTarget(
        constraints=(Constraint(kind="lowercase"), Constraint(kind="words_at_most", count=2))
    )
    assert judge_instructions(target, "a dog") is Outcome.RIGHT
    assert judge_instructions(target, "a big dog") is Outcome.WRONG


def test_deeply_nested_json_is_just_wrong() -> None:
    target = InstructionTarget(constraints=(Constraint(kind="json_keys", text="a"),))
    assert judge_instructions(target, "[" * 100_000) is Outcome.WRONG


@given(st.text(max_size=300), st.sampled_from(get_args(ConstraintKind)))
def test_any_text_is_judged(text: str, kind: ConstraintKind) -> None:
    target = InstructionTarget(constraints=(Constraint(kind=kind, text="a", count=1),))
    assert judge_instructions(target, text) in Outcome
