"""Three timed runs a side, on a real local Ray with fake engines: pairs, their measured error, where it is shown."""

import io
import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
from fakes.arena import Arena, Watching
from rich.console import Console

from lowbit_ray.evaluate import evaluate
from lowbit_ray.measure.workload import efficiency
from lowbit_ray.recheck import recheck
from lowbit_ray.records import Record, Result
from lowbit_ray.report.page import result_page
from lowbit_ray.report.terminal import render_record
from lowbit_ray.rules import load_rules
from lowbit_ray.session import ray_session

pytestmark = pytest.mark.timeout(240)
REPEATS = 3


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ray_session(2, local=True):
        yield Arena.build(tmp_path_factory.mktemp("repeats"), repeats=REPEATS)


@pytest.fixture(scope="module")
def record(arena: Arena) -> Record:
    submission = arena.submit(arena.candidate("int8"))
    return evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=Watching())


@pytest.fixture(scope="module")
def result(record: Record) -> Result:
    assert record.result is not None, record.error
    return record.result


def figures(arena: Arena, result: Result, name: str) -> tuple[np.ndarray, np.ndarray]:
    workload = arena.task.timed_workloads(load_rules())[name]
    mine, theirs = (
        [efficiency(run, workload) for run in runs[name]] for runs in (result.runs, result.anchor_runs)
    )
    return np.array(mine), np.array(theirs)


def test_the_task_says_how_often_and_the_rules_where_it_does_not(arena: Arena) -> None:
    rules = load_rules()
    assert arena.task.timed_repeats(rules) == REPEATS
    assert arena.task.model_copy(update={"repeats": None}).timed_repeats(rules) == rules.rules.repeats


def test_each_side_is_timed_so_often_on_each_workload(result: Result) -> None:
    for runs in (result.runs, result.anchor_runs):
        assert {name: len(each) for name, each in runs.items()} == dict.fromkeys(
            ("serve", "interactive", "long_context"), REPEATS
        )


def test_a_speed_is_the_ratio_of_the_means(arena: Arena, result: Result) -> None:
    for name, speed in result.speeds.items():
        mine, theirs = figures(arena, result, name)
        assert result.efficiency[name] == pytest.approx(mine.mean())
        assert speed == pytest.approx(mine.mean() / theirs.mean(), abs=1e-4)


def test_its_measured_error_is_that_of_the_pairs(arena: Arena, result: Result) -> None:
    for name, error in result.speeds_se.items():
        mine, theirs = figures(arena, result, name)
        ratios = mine / theirs
        assert error == pytest.approx(ratios.std(ddof=1) / math.sqrt(REPEATS) / ratios.mean())


def test_the_error_of_the_mean_speed_follows_from_them(result: Result) -> None:
    errors = [error for error in result.speeds_se.values() if error is not None]
    assert len(errors) == 3
    assert result.speed_se == pytest.approx(math.sqrt(sum(error**2 for error in errors)) / 3)


def test_the_score_keeps_the_rules_error_whatever_was_measured(record: Record, result: Result) -> None:
    checks = recheck(json.loads(record.to_json()), load_rules(), speed_floor=result.speed_floor)
    assert {check.status for check in checks} == {"agrees"}


def test_terminal_and_page_show_it_beside_the_rules_five_percent(record: Record, result: Result) -> None:
    console = Console(file=io.StringIO(), width=250)
    render_record(record, console)
    assert isinstance(console.file, io.StringIO)
    assert result.speed_se is not None
    for shown in (console.file.getvalue(), result_page(record)):
        assert f"measured error of {REPEATS} runs a side" in shown
        assert f"of the mean {result.speed_se:.1%}" in shown
        assert "the rules take 5 % a workload" in shown


def test_both_sides_get_the_same_prompts(arena: Arena, record: Record) -> None:
    outputs = []
    for kind in ("timed-", "anchor-"):
        (key,) = arena.ledger.keys(f"submissions/{record.id}/stages/{kind}")
        entry = arena.ledger.read(key)
        assert entry is not None
        value = json.loads(entry.data)["value"]
        outputs.append((value if kind == "timed-" else value["timed"])["outputs"]["serve"])
    mine, theirs = ([tuple(one["prompt"]) for one in each] for each in outputs)
    assert mine == theirs
