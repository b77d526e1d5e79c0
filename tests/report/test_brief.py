"""A submission on a terminal: what is wrong and what to change, each figure with its unit and error."""

import io
import json
from typing import Any

import pytest
from fakes.records import moved_record
from rich.console import Console

from lowbit_ray.records import Record
from lowbit_ray.report.advice import GATES, advice_on
from lowbit_ray.report.brief import refusal_table, submission_table
from lowbit_ray.report.plain import plain
from lowbit_ray.report.terminal import render_record
from lowbit_ray.service.views import finished_json


def told(record: Record, *, why_alone: bool = False) -> str:
    """As `lowbit show` prints it, without line breaks; of what the service answers."""
    view: dict[str, Any] = json.loads(finished_json(record.to_json().encode(), None))
    stream = io.StringIO()
    Console(file=stream, width=200).print((refusal_table if why_alone else submission_table)(view))
    return " ".join(stream.getvalue().split())


def refused(error: str, **changes: Any) -> Record:
    values = {"result": None, "status": "rejected", "error": error}
    return moved_record(2).model_copy(update=values | changes)


def test_figures_have_units_errors_and_where_they_were_measured() -> None:
    text = told(moved_record(1))
    assert "KL from BF16 0.0100 ± 0.0005 nats per token" in text
    assert "accuracy drop 0.10 ± 0.30 points" in text
    assert "KL is of the top 20," in text
    assert "of the probability beyond" in text
    assert "measured on 1 × NVIDIA H200, vLLM 0.25.1, rules 23" in text
    assert "reason" not in text


def test_a_failed_gate_is_told_with_its_margin_and_what_to_change() -> None:
    text = told(moved_record(3, rate=0.5), why_alone=True)
    assert "gate: speed FAILED: gain less its error" in text
    assert "floor 0.95, margin -" in text
    assert f"what to change {GATES['speed'].change}" in text
    assert told(moved_record(1), why_alone=True) == ""


def test_a_broken_contract_is_told_with_its_findings() -> None:
    findings = tuple(f"model.layers.{n}.mlp.up_proj.weight: a weight is missing" for n in range(14))
    text = told(
        refused("model.layers.0.mlp.up_proj.weight: a weight of the source is missing", findings=findings)
    )
    assert text.count("finding ") == 10
    assert "and 4 more: --json has all" in text
    assert "what it means A weight of the source is in the checkpoint in no form." in text
    assert "what to change Export" in text


def test_a_record_on_a_terminal_says_what_to_change_too() -> None:
    stream = io.StringIO()
    record = refused("config.json: rope_theta: differs from the source")
    render_record(record, Console(file=stream, width=400))
    assert advice_on(record)[0].change.partition("`")[0] in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;another title\x07after", "after"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("over\rwritten\x08\x9b31m", "overwritten31m"),
        ("a\tb\r\nc\n", "a\tb\nc\n"),
        ("\u202etxt.exe", "txt.exe"),
        ("größer als 1 × ≤ 2", "größer als 1 × ≤ 2"),
    ],
)
def test_a_strangers_text_moves_nothing_on_a_terminal(text: str, left: str) -> None:
    assert plain(text) == left


def test_an_engines_last_words_do_not_reach_the_terminal_as_commands() -> None:
    text = told(refused("the engine died: \x1b]0;owned\x07\x1b[2J gone", status="failed"))
    assert "the engine died: gone" in text
    assert "\x1b" not in text
