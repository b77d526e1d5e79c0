"""The anchor against itself on a real local Ray, with fake engines: what is measured, kept and shown."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev

import pytest
from fakes.arena import HERE, Arena, Watching
from rich.console import Console

from lowbit_ray.board import rank
from lowbit_ray.errors import ConfigError, LedgerError
from lowbit_ray.evaluate import evaluate, read_record, read_submission
from lowbit_ray.measure.noise_floor import FloorRun, FloorRuns, Measurement, floor_of
from lowbit_ray.noise_floor import measure_noise_floor
from lowbit_ray.records import Record
from lowbit_ray.report.floor import render_floors
from lowbit_ray.report.lines import lines_of
from lowbit_ray.rules import load_rules
from lowbit_ray.session import ray_session
from lowbit_ray.stages.floor import floor_key, read_runs

pytestmark = pytest.mark.timeout(240)
H200 = Measurement(device="1 × NVIDIA H200", release="0.25.1", rules_version="v23")


def floor_run(submission: str, speed: float, measurement: Measurement = H200) -> FloorRun:
    return FloorRun(
        submission=submission,
        finished_at=datetime(2026, 11, 30, tzinfo=UTC),
        measurement=measurement,
        speeds={"serve": speed, "interactive": 1.0},
        speed=speed,
        memory=1.0,
        kl=0.001,
        mean_drop=-0.002,
        length_shift=0.0,
        score=speed,
    )


def test_the_floor_is_mean_and_standard_deviation_of_the_evaluations() -> None:
    speeds = [0.98, 1.01, 1.03]
    floor = floor_of([floor_run(str(number), speed) for number, speed in enumerate(speeds)], H200)
    assert floor is not None
    assert floor.evaluations == 3
    assert floor.speed.mean == pytest.approx(fmean(speeds))
    assert floor.speed.sd == pytest.approx(stdev(speeds))
    assert floor.speeds["interactive"].sd == 0.0
    assert floor.mean_drop.mean == pytest.approx(-0.002)


def test_one_evaluation_has_no_standard_deviation() -> None:
    floor = floor_of([floor_run("a", 1.0)], H200)
    assert floor is not None
    assert floor.speed.sd is None


@pytest.mark.parametrize(
    "other",
    [{"device": "1 × NVIDIA B200"}, {"release": "0.33.0"}, {"rules_version": "v24"}],
    ids=lambda change: next(iter(change)),
)
def test_evaluations_that_were_measured_otherwise_are_left_out(other: dict[str, str]) -> None:
    runs = [floor_run("a", 1.0), floor_run("b", 0.5, H200.model_copy(update=other))]
    floor = floor_of(runs, H200)
    assert floor is not None
    assert floor.evaluations == 1
    assert floor_of(runs[1:], H200) is None


def test_a_run_that_is_added_again_is_not_counted_twice() -> None:
    runs = FloorRuns(task_id="t").with_run(floor_run("a", 0.9)).with_run(floor_run("a", 1.0))
    assert [run.speed for run in runs.runs] == [1.0]


def test_the_jobs_output_fits_eighty_columns_and_says_how_each_floor_was_measured() -> None:
    """As in the log of a job, which is no terminal; a CPU's name alone is half of that."""
    here = Measurement(device="2 × AMD EPYC 7763 64-Core Processor", release="0.32.0", rules_version="v23")
    later = here.model_copy(update={"rules_version": "v24"})
    runs = [floor_run("a", 0.98, here), floor_run("b", 1.01, here), floor_run("c", 1.0, later)]
    console = Console(file=StringIO(), width=80)
    console.print(render_floors(FloorRuns(task_id="t", runs=tuple(runs))))
    assert isinstance(console.file, StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert "2 × AMD EPYC 7763 64-Core Processor, engine 0.32.0, rules v23: 2 evaluations" in lines
    assert "2 × AMD EPYC 7763 64-Core Processor, engine 0.32.0, rules v24: 1 evaluation" in lines
    rows = [line.split() for line in lines]
    assert ["speed,", "serve", "1", "0.99500", "0.02121"] in rows
    assert ["accuracy", "drop,", "points", "0", "-0.20000", "0.00000"] in rows
    assert ["score", "1", "1.00000", "—"] in rows


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ray_session(2, local=True):
        yield Arena.build(tmp_path_factory.mktemp("floor"))


@pytest.fixture(scope="module")
def runs(arena: Arena) -> FloorRuns:
    return measure_noise_floor(arena.task, 2, ledger=arena.ledger, settings=arena.settings, watch=Watching())


def test_each_evaluation_is_a_whole_one_of_the_anchor_itself(arena: Arena, runs: FloorRuns) -> None:
    assert len({run.submission for run in runs.runs}) == 2
    for run in runs.runs:
        record = read_record(arena.ledger, run.submission)
        assert record is not None
        assert record.status == "done"
        assert record.result is not None
        assert record.result.engine.hard_cap
        assert run.memory == 1.0
        assert run.kl == pytest.approx(0.0, abs=1e-9)
        assert run.mean_drop == 0.0
        assert run.speeds.keys() == {"serve", "interactive", "long_context"}
        # the speed of a fake on a machine that may be busy
        assert 0.5 < run.speed < 2


def test_each_has_prompts_of_its_own(arena: Arena, runs: FloorRuns) -> None:
    said = []
    for run in runs.runs:
        (key,) = arena.ledger.keys(f"submissions/{run.submission}/stages/timed-")
        entry = arena.ledger.read(key)
        assert entry is not None
        said.append({tuple(one["prompt"]) for one in json.loads(entry.data)["value"]["outputs"]["serve"]})
    assert said[0].isdisjoint(said[1])


def test_it_stands_on_no_board_and_in_no_queue(arena: Arena, runs: FloorRuns) -> None:
    submissions = [read_submission(arena.ledger, run.submission) for run in runs.runs]
    assert {(each.partition, each.split) for each in submissions} == {("reference", "dev")}
    records = [record for run in runs.runs if (record := read_record(arena.ledger, run.submission))]
    assert rank(records, load_rules()) == []
    accepted = " ".join(arena.ledger.keys("accepted/"))
    assert not any(run.submission in accepted for run in runs.runs)


def test_it_is_kept_in_the_tasks_ledger(arena: Arena, runs: FloorRuns) -> None:
    assert read_runs(arena.ledger, "fake") == runs


def test_a_later_score_shows_it_in_record_and_report(arena: Arena, runs: FloorRuns) -> None:
    submission = arena.submit(arena.candidate("int8"))
    record = evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=Watching())
    assert record.result is not None, record.error
    floor = record.result.noise_floor.repeated
    assert floor is not None
    assert floor.evaluations == 2
    assert floor.speed.mean == pytest.approx(fmean(run.speed for run in runs.runs))
    [line] = [line for line in lines_of(record) if line.title == "Noise floor"]
    assert "BF16 against itself, 2 evaluations" in line.text
    assert Record.model_validate_json(record.to_json()) == record


@pytest.mark.usefixtures("arena")
def test_an_anchor_that_fails_its_own_evaluation_is_an_error_with_the_reason(tmp_path: Path) -> None:
    own = Arena.build(tmp_path / "arena", **HERE)
    told = own.root / "anchor" / "fake.json"
    told.write_text(json.dumps({**json.loads(told.read_text()), "faults": {"short": 1}}))
    with pytest.raises(ConfigError, match="does not pass its own evaluation") as raised:
        measure_noise_floor(own.task, 1, ledger=own.ledger, settings=own.settings, watch=Watching())
    assert "wrong number of tokens" in str(raised.value)


def test_an_anchor_that_is_none_is_an_error_of_the_tasks(tmp_path: Path) -> None:
    own = Arena.build(tmp_path / "arena")
    (own.root / "anchor" / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json: the source of the task cannot be used"):
        measure_noise_floor(own.task, 1, ledger=own.ledger, settings=own.settings, watch=Watching())


def test_a_floor_of_another_version_is_refused_by_name(arena: Arena) -> None:
    assert arena.ledger.create(floor_key("other"), b'{"version": 2, "task_id": "other", "runs": []}')
    with pytest.raises(LedgerError, match=r"tasks/other/noise_floor\.json"):
        read_runs(arena.ledger, "other")


def test_the_job_adds_to_it_and_prints_json(tmp_path: Path) -> None:
    own = Arena.build(tmp_path / "arena", **HERE)
    job = own.start_job("jobs.noise_floor", "fake", "--times", "1", "--json")
    output, _ = job.communicate(timeout=200)
    assert job.returncode == 0, output
    printed = FloorRuns.model_validate_json(output[output.index("\n{\n") :])
    assert len(printed.runs) == 1
    assert read_runs(own.ledger, "fake") == printed


def test_the_job_explains_itself(tmp_path: Path) -> None:
    own = Arena.build(tmp_path / "arena")
    job = own.start_job("jobs.noise_floor", "--help")
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0
    assert "Example: ray job submit -- python -m jobs.noise_floor" in " ".join(output.split())
