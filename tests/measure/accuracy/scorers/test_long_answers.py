"""Answers made to be slow to read: a hundred thousand blanks, fences and braces that never end."""

import time

import pytest

from lowbit_ray.measure.accuracy.items import (
    ChoiceTarget,
    Constraint,
    ContainmentTarget,
    InstructionTarget,
)
from lowbit_ray.measure.accuracy.scorers.answer_text import code_of, final_number, without_reasoning
from lowbit_ray.measure.accuracy.scorers.choice import judge_choice
from lowbit_ray.measure.accuracy.scorers.containment import judge_containment
from lowbit_ray.measure.accuracy.scorers.instructions import judge_instructions
from lowbit_ray.measure.accuracy.scorers.verdict import MAX_ANSWER_CHARS

LONG = MAX_ANSWER_CHARS - 100
TEXTS = {
    "a fence without a line's end": "```" + "a" * LONG,
    "a fence after blanks": "```" + " " * LONG + "x",
    "a fence of blank lines": "```json" + "\n" * LONG + "x",
    "fences": "```\n" * (LONG // 4),
    "a box without an end": "\\boxed{" + " " * LONG + "x",
    "a box of blanks": "\\boxed{" + " " * LONG + "x}",
    "boxes": "\\boxed{" * (LONG // 7),
    "an answer after blanks": "The answer" + " " * LONG + "!",
    "answers": "answer is " * (LONG // 10),
    "hashes": "#" * LONG,
    "digits": "1" * LONG + "a",
    "groups": "1" + ",111" * (LONG // 4) + "a",
    "a sum": "1 + " * (LONG // 4),
    "brackets": "(" * LONG,
    "words": "word " * (LONG // 5),
}
TARGETS = (
    (judge_choice, ChoiceTarget(answer="A", options=("one", "two"))),
    (judge_containment, ContainmentTarget(any_of=("needle",))),
    (
        judge_instructions,
        InstructionTarget(
            constraints=(
                Constraint(kind="words_at_least", count=0),
                Constraint(kind="bullets_exactly", count=0),
                Constraint(kind="json_keys", text="a,b"),
            )
        ),
    ),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_long_answer_is_read_in_time_that_grows_with_its_length(text: str) -> None:
    """Each scorer's reading of it, process time: the square of such a length takes minutes."""
    answer = without_reasoning(text)
    assert len(answer) > MAX_ANSWER_CHARS / 2
    began = time.process_time()
    final_number(answer)
    code_of(answer)
    for judge, target in TARGETS:
        judge(target, text)  # type: ignore[operator]
    assert time.process_time() - began < 10
