"""Each rule at its limit: what is on the right side of it passes, what is beyond is named with what was seen."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lowbit_ray.conduct import RULES, Breach, ConductLimits, Fault
from lowbit_ray.engines.accounts import Startup
from lowbit_ray.engines.footprint import Footprint
from lowbit_ray.errors import ContractError, EngineAnswerError, EngineRulesError
from lowbit_ray.measure.budget import BudgetRun
from lowbit_ray.measure.consistency import Consistency
from lowbit_ray.measure.memory import PeakMemory
from lowbit_ray.measure.replay import Replay
from lowbit_ray.measure.runs import WorkloadRun
from lowbit_ray.rules import load_rules
from lowbit_ray.stages.asked_again import Checked, Later
from lowbit_ray.stages.capped import CappedSide
from lowbit_ray.stages.conduct import (
    against_anchor,
    capped_breaches,
    checked_breaches,
    keep_rules,
    later_breaches,
    timed_breaches,
)
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide
from lowbit_ray.tasks import load_task

LIMITS = ConductLimits()
OFFLOAD = "INFO [x.py:1] Offloader set to UVAOffloader\n"


def evaluation(task: str = "qwen3-8b") -> Evaluation:
    """Of a task on a GPU, unless it says otherwise; no ledger and no pod are needed to judge."""
    return cast("Evaluation", SimpleNamespace(task=load_task(task), rules=load_rules()))


CPU = "smollm2-135m"


def look(**changes: Any) -> Footprint:
    fields: dict[str, Any] = {
        "processes": 3,
        "host_gib": 5.0,
        "read_gib": 16.0,
        "weight_files": 1,
        "peers": 0,
        "unroutable": 1,
    }
    return Footprint.model_validate(fields | changes)


@pytest.fixture
def published(fixtures: Path) -> dict[str, Any]:
    """The record of a real int8 model on a CPU, whose parts are real."""
    result: dict[str, Any] = json.loads((fixtures / "record-smollm2-w8a8.json").read_text())["result"]
    return result


def side(published: dict[str, Any], **changes: Any) -> TimedSide:
    fields = {
        "startup": Startup.model_validate(published["engine"]["startup"]),
        "runs": {
            name: tuple(WorkloadRun.model_validate(run) for run in runs)
            for name, runs in published["runs"].items()
        },
        "peaks": {name: PeakMemory.model_validate(peak) for name, peak in published["peak_memory"].items()},
        "start_log": "",
        "at_start": look(),
        "at_end": look(),
    }
    return TimedSide.model_construct(**(fields | changes))


def rules(breaches: Any) -> list[str]:
    return [breach.rule for breach in breaches]


def test_an_honest_server_breaks_nothing(published: dict[str, Any]) -> None:
    honest = side(published)
    for task in (CPU, "qwen3-8b"):
        assert rules(timed_breaches(evaluation(task), honest, 8.0)) == []
        assert rules(against_anchor(evaluation(task), honest, honest)) == []
        assert rules(capped_breaches(evaluation(task), honest, capped(), "serve", 8.0)) == []


@pytest.mark.parametrize(
    ("end", "rule"),
    [
        ({"host_gib": 5.0 + 3.9}, None),
        ({"host_gib": 5.0 + 4.1}, "host memory"),
        ({"read_gib": 16.0 + 3.9}, None),
        ({"read_gib": 16.0 + 4.1}, "second model"),  # half of the checkpoint's 8 GiB
        ({"read_gib": None}, None),
        ({"weight_files": 2}, "second model"),
        ({"peers": 1}, "network"),
        ({"unroutable": 1000}, None),  # libraries ask for the host's own name so
    ],
)
def test_what_the_timed_server_may_do_has_a_limit(
    published: dict[str, Any], end: dict[str, Any], rule: str | None
) -> None:
    found = rules(timed_breaches(evaluation(), side(published, at_end=look(**end)), 8.0))
    assert found == ([rule] if rule else [])


def test_host_memory_is_the_device_of_a_cpu(published: dict[str, Any]) -> None:
    grown = side(published, at_end=look(host_gib=50.0), start_log=OFFLOAD)
    assert rules(timed_breaches(evaluation(CPU), grown, 8.0)) == []
    assert rules(timed_breaches(evaluation(), grown, 8.0)) == ["offload", "host memory"]


def test_offload_that_the_accounts_report_breaks_the_rules_as_the_record_says(
    published: dict[str, Any],
) -> None:
    startup = Startup.model_validate(published["engine"]["startup"])
    told = startup.model_copy(update={"offload": ("KV: 512 blocks in host memory",)})
    (breach,) = timed_breaches(evaluation(), side(published, startup=told), 8.0)
    assert (breach.rule, breach.seen) == ("offload", "KV: 512 blocks in host memory")


def test_offload_is_seen_of_a_server_without_accounts_too(published: dict[str, Any]) -> None:
    log = "load_tensors: offloaded 20/33 layers to GPU\n"
    (breach,) = timed_breaches(evaluation(), side(published, startup=None, start_log=log), 8.0)
    assert breach.rule == "offload"
    assert "only 20/33 layers on the GPU" in breach.seen


@pytest.mark.parametrize(("beyond", "rule"), [(7.9, []), (8.1, ["host memory"])])
def test_host_memory_beyond_bf16s_has_a_limit(
    published: dict[str, Any], beyond: float, rule: list[str]
) -> None:
    mine, theirs = side(published, at_end=look(host_gib=5.0 + beyond)), side(published)
    assert rules(against_anchor(evaluation(), mine, theirs)) == rule
    assert rules(against_anchor(evaluation(CPU), mine, theirs)) == []


@pytest.mark.parametrize(("hidden", "rule"), [(1.9, []), (2.1, ["memory accounts"])])
def test_memory_that_is_in_no_account_has_a_limit(
    published: dict[str, Any], hidden: float, rule: list[str]
) -> None:
    honest = side(published)
    peaks = {
        name: peak.model_copy(update={"device_peak_gib": (peak.device_peak_gib or 0) + hidden})
        for name, peak in honest.peaks.items()
    }
    assert rules(against_anchor(evaluation(CPU), side(published, peaks=peaks), honest)) == rule


@pytest.mark.parametrize(("share", "rule"), [(0.65, []), (0.5, ["memory accounts"])])
def test_a_gauge_that_shows_too_little_has_a_limit(
    published: dict[str, Any], share: float, rule: list[str]
) -> None:
    honest = side(published)
    runs = {
        "serve": tuple(
            run.model_copy(update={"kv_usage": share * (run.kv_usage or 0)}) for run in honest.runs["serve"]
        )
    }
    found = list(against_anchor(evaluation(CPU), side(published, runs=runs), honest))
    assert rules(found) == rule
    assert all("0.50 of BF16's" in breach.seen for breach in found)


def capped(**changes: Any) -> CappedSide:
    run = BudgetRun(
        budget_gib=8.0,
        cap_gib=12.0,
        factor=1.02,
        full_running=8,
        healthy=True,
        running=8,
        value=100.0,
        reason=None,
    )
    fields: dict[str, Any] = {
        "run": run,
        "start_log": "",
        "at_start": look(),
        "at_end": look(),
        "device_peak_gib": None,
    }
    return CappedSide.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"start_log": OFFLOAD}, "offload"),
        ({"at_start": look(host_gib=9.2), "at_end": look(host_gib=9.2)}, "host memory"),
        ({"at_end": look(read_gib=25.0)}, "second model"),
        ({"at_end": look(peers=2)}, "network"),
    ],
)
def test_what_a_server_moves_to_the_host_to_fit_under_its_cap_is_seen(
    published: dict[str, Any], changes: dict[str, Any], rule: str
) -> None:
    """Without a cap it was honest."""
    (breach,) = capped_breaches(evaluation(), side(published), capped(**changes), "serve", 8.0)
    assert breach.rule == rule
    assert "cap of serve" in breach.where


def test_more_than_the_cap_is_no_fit(published: dict[str, Any]) -> None:
    without = side(published, startup=None)
    over = capped(device_peak_gib=12.1)
    assert rules(capped_breaches(evaluation(CPU), without, over, "serve", 8.0)) == ["hard cap"]
    assert rules(capped_breaches(evaluation(CPU), without, capped(device_peak_gib=11.9), "serve", 8.0)) == []


def test_an_unhealthy_run_says_why(published: dict[str, Any]) -> None:
    unwell = capped(run=capped().run.model_copy(update={"healthy": False, "reason": "kept 0.5 of its rate"}))
    (breach,) = capped_breaches(evaluation(), side(published), unwell, "serve", 8.0)
    assert (breach.rule, breach.seen) == ("hard cap", "kept 0.5 of its rate")


REPLAY = Replay(requests=4, rounds=1, tpot_ratio=1.0)
SAID = Consistency(
    self_gap={"serve": 0.01, "interactive": None},
    timed_tokens=64,
    chosen_share=0.0,
    asked_again=0.0,
    forced=0.02,
)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({}, None),
        ({"texts_disagree": None}, None),
        ({"texts_disagree": 0.25}, None),
        ({"texts_disagree": 0.5}, "token counts"),
        ({"replay": REPLAY.model_copy(update={"tpot_ratio": 0.61})}, None),
        ({"replay": REPLAY.model_copy(update={"tpot_ratio": 0.59})}, "answer cache"),
        ({"consistency": SAID.model_copy(update={"self_gap": {"serve": 0.24}})}, None),
        ({"consistency": SAID.model_copy(update={"self_gap": {"serve": 0.26}})}, "two faces"),
        ({"consistency": SAID.model_copy(update={"chosen_share": 0.11})}, "log-probabilities"),
        ({"consistency": SAID.model_copy(update={"asked_again": 0.11})}, "log-probabilities"),
        ({"consistency": SAID.model_copy(update={"forced": 0.3, "forced_kl": 0.09})}, None),
        ({"consistency": SAID.model_copy(update={"forced_kl": 0.11})}, "log-probabilities"),
        ({"consistency": SAID.model_copy(update={"chosen_share": None, "forced": None})}, None),
    ],
)
def test_what_it_was_asked_again_has_limits(changes: dict[str, Any], rule: str | None) -> None:
    checked = Checked.model_validate({"replay": REPLAY, "consistency": SAID, "texts_disagree": 0.0} | changes)
    assert rules(checked_breaches(checked, LIMITS)) == ([rule] if rule else [])


def test_a_later_server_that_remembers_is_named_as_one() -> None:
    (breach,) = later_breaches(
        Later(replay=REPLAY.model_copy(update={"tpot_ratio": 0.1, "rounds": 3})), LIMITS
    )
    assert "later server" in breach.where
    assert "in each of 3 rounds" in breach.seen


@pytest.mark.parametrize("rule", RULES)
def test_a_verdict_says_the_rule_what_was_seen_and_the_limit(rule: str) -> None:
    breach = Breach(rule=rule, where="workload serve", seen="7.00 GiB", limit="≤ 4 GiB")
    with pytest.raises(EngineRulesError) as caught:
        keep_rules([breach])
    for words in (rule, RULES[rule], "workload serve", "7.00 GiB", "≤ 4 GiB"):
        assert words in str(caught.value)
    fault = Fault.of(caught.value)
    assert (fault.kind, fault.rule, fault.seen, fault.limit) == ("engine rules", rule, "7.00 GiB", "≤ 4 GiB")


def test_other_faults_have_no_rule() -> None:
    assert Fault.of(ContractError("broken", where="config.json: x", found=1, expected=2)).kind == "contract"
    fault = Fault.of(EngineAnswerError("wrong", found=None))
    assert (fault.kind, fault.rule, fault.seen) == ("engine", None, None)
