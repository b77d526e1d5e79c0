import importlib
import re
from typing import get_args

import pytest

from lowbit_ray.measure.accuracy.generate import LEVELS, generate_items
from lowbit_ray.measure.accuracy.generate.facts import Fact, facts
from lowbit_ray.measure.accuracy.generate.retrieval import approximate_tokens
from lowbit_ray.measure.accuracy.items import ChoiceTarget, ContainmentTarget, DomainName, MathsTarget
from lowbit_ray.measure.accuracy.scorers.answer_text import plain_number

FACTS: tuple[tuple[Fact, ...], ...] = tuple(
    tuple(fact for kind in facts(level) for fact in kind) for level in range(3)
)
DOMAINS: tuple[DomainName, ...] = get_args(DomainName)


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_same_seed_gives_the_same_items(domain: DomainName) -> None:
    assert generate_items(domain, b"seed", 24) == generate_items(domain, b"seed", 24)


@pytest.mark.parametrize("domain", DOMAINS)
def test_another_seed_gives_other_items(domain: DomainName) -> None:
    assert generate_items(domain, b"seed", 24) != generate_items(domain, b"other", 24)


@pytest.mark.parametrize("domain", DOMAINS)
def test_pooled_evaluations_ask_different_questions(domain: DomainName) -> None:
    first = generate_items(domain, b"seed", 24, evaluation=0)
    second = generate_items(domain, b"seed", 24, evaluation=1)
    assert not {item.messages[-1].content for item in first} & {item.messages[-1].content for item in second}
    assert not {item.id for item in first} & {item.id for item in second}


@pytest.mark.parametrize("domain", DOMAINS)
def test_half_of_the_items_are_easy(domain: DomainName) -> None:
    levels = [item.level for item in generate_items(domain, b"seed", 2 * len(LEVELS))]
    assert sorted(levels) == sorted(LEVELS * 2)
    assert levels.count(0) == len(LEVELS)


def test_several_hundred_facts_are_known() -> None:
    names = [fact.name for level in FACTS for fact in level]
    assert len(names) >= 500
    assert len(names) == len(set(names))


@pytest.mark.parametrize("domain", DOMAINS)
def test_hundreds_of_items_come_without_repeating_a_question(domain: DomainName) -> None:
    items = generate_items(domain, b"seed", 200)
    questions = {item.messages[-1].content for item in items}
    assert len(questions) >= (200 if domain != "code" else 150)


def test_a_repeated_fact_shares_its_cluster() -> None:
    clusters: dict[str, set[str]] = {}
    items = generate_items("knowledge", b"seed", 900)
    for item in items:
        clusters.setdefault(item.messages[-1].content.partition("\n")[0], set()).add(item.cluster)
    assert len(clusters) < len(items)
    assert all(len(names) == 1 for names in clusters.values())


def test_a_maths_answer_is_an_integer() -> None:
    for item in generate_items("math", b"seed", 100):
        assert isinstance(item.target, MathsTarget)
        value = plain_number(item.target.answer)
        assert value is not None
        assert value.denominator == 1


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"What is (\d+) \+ (\d+)\?", lambda a, b: a + b),
        (r"What is (\d+) - (\d+)\?", lambda a, b: a - b),
        (r"What is (\d+) times (\d+)\?", lambda a, b: a * b),
        (r"has (\d+) \w+ and gets (\d+) more", lambda a, b: a + b),
        (r"has (\d+) \w+ and loses (\d+)\.", lambda a, b: a - b),
        (r"(\d+) friends share (\d+)", lambda a, b: b // a),
    ],
)
def test_a_simple_problem_has_its_own_answer(pattern: str, value: object) -> None:
    found = 0
    for item in generate_items("math", b"seed", 400):
        match = re.search(pattern, item.messages[-1].content)
        if match and item.level < 2:
            found += 1
            assert callable(value)
            assert isinstance(item.target, MathsTarget)
            assert item.target.answer == str(value(int(match[1]), int(match[2])))
    assert found >= 5


def test_wrong_options_are_wrong_and_not_in_the_question() -> None:
    answers = {fact.question: fact.answer for level in FACTS for fact in level}
    for item in generate_items("knowledge", b"seed", 300):
        question = item.messages[-1].content.partition("\n")[0]
        target = item.target
        if isinstance(target, ChoiceTarget):
            right = target.options["ABCD".index(target.answer)]
            wrong = [option for option in target.options if option != right]
            assert item.chance == 0.25
        else:
            assert isinstance(target, ContainmentTarget)
            right, wrong = target.any_of[0], list(target.none_of)
            assert item.chance == 0
        assert right == answers[question]
        assert len(set(wrong)) == 3
        assert not [option for option in wrong if option in question]


def test_no_fact_has_two_right_answers_in_its_family() -> None:
    by_question: dict[str, set[str]] = {}
    for level in FACTS:
        for fact in level:
            by_question.setdefault(fact.question, set()).add(fact.answer)
            assert len(set(fact.family)) == len(fact.family)
    assert all(len(answers) == 1 for answers in by_question.values())


def test_each_function_of_the_standard_library_is_in_one_module_only() -> None:
    asked = [fact for fact in FACTS[2] if fact.name.startswith("module-")]
    assert len(asked) > 40
    for fact in asked:
        name = fact.question.rpartition(" ")[2].rstrip("?")
        homes = [module for module in fact.family if hasattr(importlib.import_module(module), name)]
        assert homes == [fact.answer], name


@pytest.mark.parametrize("tokens", [128, 512, 16000])
def test_a_context_has_about_the_length_asked_for(tokens: int) -> None:
    for item in generate_items("retrieval", b"seed", 8, context_tokens=tokens):
        assert 0.95 * tokens < approximate_tokens(item.messages[-1].content) < 1.05 * tokens + 40


def test_the_code_asked_for_stands_once_in_the_context_and_belongs_to_one_key() -> None:
    for item in generate_items("retrieval", b"seed", 40, context_tokens=600):
        text, _, question = item.messages[-1].content.rpartition("\n\nQuestion: ")
        key = question.removeprefix("What is the code of the ").rstrip("?")
        assert isinstance(item.target, ContainmentTarget)
        assert re.findall(rf"code of the {key} is (\d+)\.", text) == list(item.target.any_of)
