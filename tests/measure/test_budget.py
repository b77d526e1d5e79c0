"""The hard cap's verdict, by the example's numbers and at its edges."""

import json
from pathlib import Path

import pytest
from loads import workload
from test_peak_memory import run

from lowbit_ray.measure.budget import budget_of, judge
from lowbit_ray.rules import load_rules

RULES = load_rules().engine


@pytest.mark.parametrize("name", ["serve", "interactive", "long_context"])
def test_the_examples_budgets_and_caps(fixtures: Path, name: str) -> None:
    result = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())["result"]
    budget = budget_of(result["peak_memory"][name]["peak_gib"], RULES, 1)
    shown = result["engine"]["budget"][f"{name}@1.02"]
    assert budget.budget_gib == pytest.approx(shown["budget_gib"], abs=0.001)
    assert budget.cap_gib == pytest.approx(shown["cap_gib"], abs=0.001)


def test_as_many_requests_at_once_is_healthy_whatever_the_rate() -> None:
    slow = run(0.5, running=4).model_copy(update={"output_throughput": 10.0})
    verdict = judge(budget_of(10, RULES, 1), run(0.5, running=4), slow, workload(), RULES)
    assert verdict.healthy
    assert verdict.reason is None
    assert (verdict.full_running, verdict.running, verdict.value) == (4, 4, 10)


@pytest.mark.parametrize(("value", "healthy"), [(90.0, True), (89.9, False)])
def test_fewer_at_once_is_healthy_at_nine_tenths_of_the_rate(value: float, healthy: bool) -> None:
    capped = run(0.5, running=3).model_copy(update={"output_throughput": value})
    verdict = judge(budget_of(10, RULES, 1), run(0.5, running=4), capped, workload(), RULES)
    assert verdict.healthy is healthy
    assert (verdict.reason is None) is healthy


def test_an_engine_that_does_not_say_is_judged_by_its_rate() -> None:
    verdict = judge(
        budget_of(10, RULES, 1), run(None, running=None), run(None, running=None), workload(), RULES
    )
    assert verdict.healthy


def test_an_engine_that_does_not_come_up_is_not_healthy_and_says_why() -> None:
    verdict = judge(budget_of(10, RULES, 1), run(0.5), None, workload(), RULES, failure="out of memory")
    assert not verdict.healthy
    assert verdict.reason == "did not serve the workload under 14.200 GiB: out of memory"


def test_the_verdict_has_the_examples_keys(fixtures: Path) -> None:
    result = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())["result"]
    verdict = judge(budget_of(10, RULES, 1), run(0.5), run(0.5), workload(), RULES)
    assert set(result["engine"]["budget"]["serve@1.02"]) <= set(verdict.model_dump())


def test_each_device_has_a_context_of_its_own() -> None:
    one, two = budget_of(40, RULES, 1), budget_of(40, RULES, 2)
    assert (one.budget_gib, one.cap_gib) == pytest.approx((40.8, 44.8))
    assert (two.budget_gib, two.cap_gib) == pytest.approx((40.8, 48.8))
