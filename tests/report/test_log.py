"""Structured logs of jobs."""

import io
import json
from typing import Any

import pytest

from lowbit_ray.errors import PodError
from lowbit_ray.report.log import Log, LogWatch, told


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_line_is_json_with_submission_stage_and_time() -> None:
    stream = io.StringIO()
    watch = LogWatch(Log(stream, submission="ab"))
    watch.begin("timed-5f0c")
    watch.progress("timing serve", 1, 64)
    watch.end("timed-5f0c", 12.3456, reused=False)
    said = lines(stream)
    assert [line["event"] for line in said] == ["step begins", "timing serve", "step done"]
    assert {line["submission"] for line in said} == {"ab"}
    assert {line["stage"] for line in said} == {"timed"}
    assert all(line["at"].endswith("Z") and line["level"] == "info" for line in said)
    assert said[-1]["seconds"] == 12.346


def test_progress_within_one_thing_is_not_repeated_at_once() -> None:
    stream = io.StringIO()
    watch = LogWatch(Log(stream))
    watch.begin("quality")
    for done in range(100):
        watch.progress("asking", done, 100)
    assert [line["event"] for line in lines(stream)] == ["step begins", "asking"]


def test_an_error_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PodError), told("json", "ab"):
        raise PodError("no pod within 3 s", found="4 GPU")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["submission"], line["kind"]) == ("error", "ab", "PodError")
    assert "4 GPU" in line["message"]


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with told("text", "ab") as watch:
        watch.end("contract", 1.0, reused=False)
    assert "✓ contract" in capsys.readouterr().err


def test_text_that_is_no_terminal_says_each_new_thing_once_and_how_much_of_it_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with told("text", "ab") as watch:
        for done in range(3):
            watch.progress("the anchor against itself", done, 3)
        watch.progress("starting the engine", 0, 0)
    said = [line.split(maxsplit=2)[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["the anchor against itself 0 of 3", "starting the engine"]
