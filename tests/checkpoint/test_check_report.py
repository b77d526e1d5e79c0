"""The whole check: report, exit code, JSON and the terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recipes import RECIPES
from rich.console import Console
from small_checkpoints import base_config, plain_tensors, write_checkpoint

from lowbit_ray.checkpoint.check import CheckReport, check
from lowbit_ray.checkpoint.render import render
from lowbit_ray.errors import CheckpointError
from lowbit_ray.rules import Rules
from lowbit_ray.tasks import load_task

TASK = load_task("smollm2-135m")


def printed(report: CheckReport) -> str:
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(render(report))
    return capture.get()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_format_has_a_report_that_prints(
    tmp_path: Path, source: Path, rules: Rules, recipe: object
) -> None:
    report = check(source, recipe.write(tmp_path), task=TASK, rules=rules)  # type: ignore[attr-defined]
    assert report.exit_code == 0
    text = printed(report)
    assert "contract kept" in text
    assert recipe.label in text  # type: ignore[attr-defined]
    assert CheckReport.model_validate_json(report.model_dump_json()) == report


def test_a_true_declaration_agrees(tmp_path: Path, source: Path, rules: Rules) -> None:
    report = check(source, RECIPES[0].write(tmp_path), task=TASK, rules=rules, declared="W8A8KV16")
    assert report.agrees
    assert report.contract.findings == ()


@pytest.mark.parametrize("declared", ["W4A8KV16", "W8A8KV8", "eight bits"])
def test_a_false_declaration_is_said_and_breaks_nothing(
    tmp_path: Path, source: Path, rules: Rules, declared: str
) -> None:
    report = check(source, RECIPES[0].write(tmp_path), task=TASK, rules=rules, declared=declared)
    assert (report.kept, report.agrees, report.exit_code) == (True, False, 0)
    assert report.contract.findings[-1].found == "W8A8KV16"


def test_a_broken_contract_exits_with_1_and_prints_why(tmp_path: Path, source: Path, rules: Rules) -> None:
    candidate = write_checkpoint(tmp_path, plain_tensors(), base_config(vocab_size=1))
    report = check(source, candidate, task=TASK, rules=rules)
    assert (report.kept, report.exit_code) == (False, 1)
    assert "config.json: vocab_size" in printed(report)


def test_what_cannot_be_read_raises(tmp_path: Path, source: Path, rules: Rules) -> None:
    with pytest.raises(CheckpointError):
        check(source, tmp_path, task=TASK, rules=rules)


def test_text_of_a_checkpoint_is_not_taken_as_markup(tmp_path: Path, source: Path, rules: Rules) -> None:
    config = base_config(hidden_act="[bold red]x[/bold red]")
    report = check(source, write_checkpoint(tmp_path, plain_tensors(), config), task=TASK, rules=rules)
    assert "[bold red]x[/bold red]" in printed(report)


def test_escape_sequences_do_not_reach_the_terminal(tmp_path: Path, source: Path, rules: Rules) -> None:
    config = base_config(hidden_act="\x1b[31mred")
    report = check(source, write_checkpoint(tmp_path, plain_tensors(), config), task=TASK, rules=rules)
    assert "\x1b" not in printed(report) + json.dumps(report.model_dump())


LIGHT = """
import sys
import lowbit_ray.checkpoint.check, lowbit_ray.checkpoint.render, lowbit_ray.checkpoint.fetch
heavy = {"torch", "vllm", "ray", "aiohttp", "psutil", "numpy", "scipy", "boto3", "huggingface_hub"} & set(sys.modules)
print(sorted(heavy))
"""


def test_the_base_install_is_enough(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
