"""Each entry point through a real `ray job submit`, with fake engines: exit codes, output, what is in the ledger."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from jobs_server import Ended, JobServer

from lowbit_ray.evaluate import read_record
from lowbit_ray.index import accept
from lowbit_ray.measure.noise_floor import FloorRuns
from lowbit_ray.records import Record
from lowbit_ray.rules import DEFAULT_RULES
from lowbit_ray.submission import Submission

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]


def submission_of(server: JobServer, name: str, **changes: Any) -> Submission:
    folder = server.arena.root / "candidate"
    if not folder.is_dir():
        server.arena.candidate("candidate")
    submission = server.arena.submit(folder, method=name, **changes)
    accept(server.arena.ledger, submission)
    return submission


@pytest.fixture(scope="session")
def evaluated(server: JobServer) -> tuple[Submission, Ended]:
    submission = submission_of(server, "evaluated")
    return submission, server.submit("jobs.evaluate", submission.id, "--log", "json")


def test_evaluate_prints_the_record_that_the_ledger_holds(
    server: JobServer, evaluated: tuple[Submission, Ended]
) -> None:
    submission, ended = evaluated
    assert ended.code == 0, ended.log
    record = Record.model_validate(ended.json())
    assert record.status == "done"
    assert read_record(server.arena.ledger, submission.id) == record


def test_the_log_of_a_job_is_json_with_submission_and_stage(evaluated: tuple[Submission, Ended]) -> None:
    submission, ended = evaluated
    lines = [json.loads(line) for line in ended.log.splitlines() if line.startswith('{"at"')]
    assert {line["submission"] for line in lines} == {submission.id}
    assert {"build", "contract", "timed", "anchor", "capped", "quality"} <= {
        line.get("stage") for line in lines
    }
    assert lines[-1]["event"] == "evaluation over"


def test_the_same_evaluation_again_is_only_read(
    server: JobServer, evaluated: tuple[Submission, Ended]
) -> None:
    submission, ended = evaluated
    again = server.here("jobs.evaluate", submission.id)
    assert again.code == 0
    assert again.json() == ended.json()


def test_evaluating_what_is_not_there_fails_in_one_line(server: JobServer) -> None:
    ended = server.submit("jobs.evaluate", "f" * 16)
    assert ended.driver_code == 1
    assert "no such submission" in ended.log
    assert "Traceback" not in ended.log.partition("no such submission")[0]


def metrics(server: JobServer) -> str:
    """What Prometheus would read of all nodes."""
    found = ""
    listing = server.cluster.root / "ray" / "prom_metrics_service_discovery.json"
    for target in json.loads(listing.read_text())[0]["targets"]:
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
            found += answer.read().decode()
    return found


def test_the_time_of_steps_reaches_prometheus(server: JobServer, evaluated: tuple[Submission, Ended]) -> None:
    deadline = time.monotonic() + 150
    stages: set[str] = set()
    while not {"build", "contract"} <= stages:
        assert time.monotonic() < deadline, stages
        time.sleep(1)
        stages |= set(re.findall(r'ray_lowbit_stage_seconds_count\{.*?stage="(\w+)"', metrics(server)))


def test_a_reference_is_marked_as_one_and_stands_unranked_on_the_board(server: JobServer) -> None:
    ended = server.submit("jobs.reference", "fake", "anchor", "--name", "BF16", "--precision", "W16A16KV16")
    assert ended.code == 0, ended.log
    record = Record.model_validate(ended.json())
    assert (record.partition, record.participant, record.status) == ("reference", "BF16", "done")
    rows = server.here("jobs.board", "fake", "--json").json()
    assert isinstance(rows, list)
    assert [(row["rank"], row["reference"]) for row in rows if row["participant"] == "BF16"] == [(None, True)]


def test_a_reference_of_an_unknown_task_fails_in_one_line(server: JobServer) -> None:
    ended = server.here("jobs.reference", "nothing", "anchor", "--name", "BF16")
    assert ended.driver_code == 1
    assert "no such task" in ended.log


def test_the_board_is_text_json_or_csv(server: JobServer, evaluated: tuple[Submission, Ended]) -> None:
    submission, _ = evaluated
    text = server.here("jobs.board", "fake")
    assert text.code == 0
    assert submission.id in text.log
    rows = server.submit("jobs.board", "fake", "--json").json()
    assert isinstance(rows, list)
    log = server.here("jobs.board", "fake", "--csv").log
    lines = log[log.index("score,") : log.index("\nexit code")].splitlines()
    table = list(csv.DictReader(io.StringIO("\n".join(lines))))
    mine = next(row for row in table if row["submission"] == submission.id)
    same = next(row for row in rows if row["submission"] == submission.id)
    assert float(mine["board_score"]) == same["board_score"]


def test_rescoring_by_the_same_rules_changes_nothing_and_by_others_says_what(
    server: JobServer, evaluated: tuple[Submission, Ended]
) -> None:
    submission, _ = evaluated
    same = server.here("jobs.rescore", "fake", "--rules", str(DEFAULT_RULES))
    assert same.code == 0, same.log
    assert "0 of" in same.log
    rules = json.loads(DEFAULT_RULES.read_text())
    rules["rules"]["w_kl"] = 1.0
    path = server.arena.root / "new.json"
    path.write_text(json.dumps(rules))
    other = server.submit("jobs.rescore", "fake", "--rules", str(path), "--json")
    assert other.driver_code == 1
    found = other.json()
    assert isinstance(found, dict)
    move = next(move for move in found["moves"] if move["submission"] == submission.id)
    assert move["score_after"] < move["score_before"]
    path.write_text("{}")
    assert server.here("jobs.rescore", "fake", "--rules", str(path)).code == 2


def test_the_noise_floor_is_measured_and_stored(server: JobServer) -> None:
    ended = server.submit("jobs.noise_floor", "fake", "--times", "1", "--json")
    assert ended.code == 0, ended.log
    runs = FloorRuns.model_validate(ended.json())
    assert len(runs.runs) == 1
    assert server.arena.ledger.read("tasks/fake/noise_floor.json") is not None


def test_the_dispatcher_starts_a_job_for_who_waits_and_publishes_the_queue(server: JobServer) -> None:
    submission = submission_of(server, "dispatched", participant="another")
    ended = server.submit("jobs.dispatch", "--once", "--json")
    assert ended.code == 0, ended.log
    assert f'"started":["{submission.id}"]' in ended.log.replace(" ", "")
    deadline = time.monotonic() + 120
    while (record := read_record(server.arena.ledger, submission.id)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert record.status == "done"


def test_the_doctor_runs_as_a_job_and_looks_at_each_node(server: JobServer) -> None:
    ended = server.run("lowbit", "doctor", "--json")
    found = ended.json()
    assert isinstance(found, list)
    levels = {finding["what"]: finding["level"] for finding in found if not finding["where"]}
    assert levels["ledger"] == "good"
    assert levels["pod of fake"] == "good"
    inside = {finding["what"]: finding["level"] for finding in found if finding["where"]}
    assert inside["niceness"] == "good"


@pytest.mark.parametrize("arguments", [["board", "fake"], ["rescore", "fake", "--rules", "none.json"]])
def test_a_task_that_cannot_be_read_is_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"jobs.{arguments[0]}", *arguments[1:]],
        cwd=ROOT,
        env=os.environ | {"LOWBIT_LEDGER": str(tmp_path), "LOWBIT_TASKS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("ConfigError: ")


def test_readme_has_the_line_of_every_job() -> None:
    readme = (ROOT / "README.md").read_text()
    for path in (ROOT / "jobs").glob("*.py"):
        if not path.stem.startswith("_"):
            assert f"ray job submit -- python -m jobs.{path.stem}" in readme, path.name
