"""A record in words and pictures: nothing is invented, nothing a participant wrote can act."""

import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from lowbit_ray.records import Record
from lowbit_ray.report.console import ConsoleWatch
from lowbit_ray.report.lines import headline, lines_of, workload_rows
from lowbit_ray.report.page import result_page
from lowbit_ray.report.picture import LEFT, RIGHT, WIDTH, Point, picture
from lowbit_ray.report.terminal import render_record


@pytest.fixture(scope="module")
def stored(fixtures: Path) -> dict[str, Any]:
    """A record of the demo, as it was written."""
    loaded: dict[str, Any] = json.loads((fixtures / "record-smollm2-w8a8.json").read_text())
    return loaded


@pytest.fixture
def record(stored: dict[str, Any]) -> Record:
    return Record.model_validate(stored)


def text_of(record: Record) -> str:
    console = Console(file=io.StringIO(), width=160)
    render_record(record, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_terminal_and_page_say_the_same(record: Record) -> None:
    page, terminal = result_page(record), text_of(record)
    assert record.result is not None
    for line in lines_of(record):
        assert line.title in terminal
        assert line.title in page or line.title.startswith("Gate:")
    assert f"{record.result.score:.3f}" in terminal
    assert f"{record.result.score:.3f}" in page
    assert headline(record).partition(":")[0] in terminal


def test_workloads_come_in_the_rules_order(record: Record) -> None:
    assert [row[0] for row in workload_rows(record.result)] == ["serve", "interactive", "long context"]  # type: ignore[arg-type]


def test_what_a_participant_wrote_is_escaped(stored: dict[str, Any]) -> None:
    evil = "<script>alert(1)</script>"
    changed = stored | {
        "participant": evil,
        "solution": stored["solution"] | {"method": evil, "precision": evil},
    }
    page = result_page(Record.model_validate(changed))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_the_page_asks_nothing_of_anybody(record: Record) -> None:
    page = result_page(record)
    assert not re.search(r"""(?:src|href)\s*=|@import|url\(""", page)


def test_a_rejected_record_says_why(stored: dict[str, Any]) -> None:
    changed = stored | {
        "result": None,
        "status": "rejected",
        "error": "config.json: hidden_size",
        "findings": ["one"],
    }
    record = Record.model_validate(changed)
    assert "config.json: hidden_size" in text_of(record)
    assert "config.json: hidden_size" in result_page(record)


def test_what_an_engine_was_shut_in_by_is_said(stored: dict[str, Any]) -> None:
    shut_in = {
        "kind": "none",
        "reason": "bubblewrap is not installed",
        "network": "host",
        "processes": "host",
        "user": "host",
        "memory_limit": "watched",
        "process_limit": "none",
    }
    record = Record.model_validate({**stored, "track": "engine", "isolation": shut_in})
    line = next(line for line in lines_of(record) if line.title == "Sandbox")
    assert "bubblewrap is not installed" in line.text
    assert line.note == "not scored officially"
    assert not [line for line in lines_of(Record.model_validate(stored)) if line.title == "Sandbox"]


def test_the_picture_puts_each_point_on_its_curve() -> None:
    points = [Point("BF16", "anchor", 0.0, 1.0), Point("mine", "candidate", 2.0, 1.5, 0.5, 1.2)]
    root = ElementTree.fromstring(picture(points))
    circles = [e for e in root.iter() if e.tag == "circle" and e.get("class") != "target"]
    (bf16, mine) = ((float(c.get("cx", 0)), float(c.get("cy", 0))) for c in circles)
    assert mine[0] > bf16[0]  # more drift is further right
    assert mine[1] < bf16[1]  # more efficiency is higher up
    curve = next(e for e in root.iter() if e.tag == "polyline" and "1.00" in _label_after(root, e))
    start = [float(number) for number in (curve.get("points") or "").split()[0].split(",")]
    assert start == pytest.approx(list(bf16), abs=0.1)  # BF16 lies on the curve of score 1


def _label_after(root: ElementTree.Element, curve: ElementTree.Element) -> str:
    children = list(root.iter())
    return children[children.index(curve) + 1].text or ""


@pytest.mark.parametrize("drift", [-1.0, 0.0, 30.0])
def test_a_mark_stays_within_the_picture_whatever_its_drift(drift: float) -> None:
    root = ElementTree.fromstring(picture([Point("x", "candidate", drift, 0.01, 5.0)]))
    [error] = [element for element in root.iter("line") if element.get("class") == "error"]
    left, right = float(error.get("x1", 0)), float(error.get("x2", 0))
    assert LEFT <= left < right <= WIDTH - RIGHT or left == right == WIDTH - RIGHT  # 30 is beyond its edge


def test_where_the_output_is_no_terminal_progress_is_plain_lines() -> None:
    console = Console(file=io.StringIO(), width=100)
    with ConsoleWatch(console) as watch:
        watch.begin("timed-0123")
        watch.progress("timing serve", 1, 16)
        watch.progress("timing serve", 2, 16)
        watch.end("timed-0123", 61.0, reused=False)
        watch.end("capped-long_context-0123", 1.0, reused=True)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("timing serve") == 1
    assert "candidate timed" in text
    assert "1:01 min" in text
    assert "hard cap (long_context)" in text
    assert "kept from before" in text
    assert "\x1b" not in text
