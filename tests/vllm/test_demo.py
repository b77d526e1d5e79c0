"""The demo as a user runs it: a real model from the package index, real vLLM servers on the CPU, real Ray.

Its task has fewer and shorter requests here (short_task.py), so that what takes a user seven minutes takes three.
"""

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from short_task import write_short_task

from lowbit_ray.recheck import recheck_file
from lowbit_ray.records import Record

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs the cpu extra: scripts/install cpu test"),
]


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from lowbit_ray.cli import main; main()"
    return subprocess.run(
        # a relative folder, as README's command has it
        [sys.executable, "-c", program, "demo", "--keep", folder.name, *arguments],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=1400,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        | {"LOWBIT_TASKS": str(folder.parent / "tasks")},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo")
    write_short_task(root / "tasks")
    return root / "kept"


@pytest.fixture(scope="module")
def record(folder: Path) -> Record:
    done = demo(folder, "--json")
    assert done.returncode == 0, done.stderr
    return Record.model_validate_json(done.stdout)


def test_the_demo_ends_with_a_score_on_every_stage(record: Record) -> None:
    assert record.status == "done"
    assert {stage.status for stage in record.stages} == {"done"}
    assert record.result is not None
    assert record.result.score > 0
    assert record.host is not None
    assert record.result.engine.startup is not None
    assert record.result.engine.startup.vllm_version == record.host.vllm


def test_it_reads_and_executes_what_was_declared(record: Record) -> None:
    assert record.solution.precision == record.solution.detected_precision == "W8A8KV16"
    assert record.result is not None
    assert record.result.executed is not None
    assert record.result.executed.label == "W8A8KV16"


def test_int8_is_near_its_anchor_and_smaller(record: Record) -> None:
    result = record.result
    assert result is not None
    assert 0 < result.kl.kl < 0.1
    assert result.noise_floor.kl < result.kl.kl / 10
    assert 1.3 < result.memory < 1.7
    assert all(run.healthy for run in result.engine.budget.values())


def test_the_record_on_disk_recomputes(folder: Path, record: Record) -> None:
    path = folder / "results" / "w8a8" / "record.json"
    assert json.loads(path.read_text())["id"] == record.id
    assert {check.status for check in recheck_file(path)} == {"agrees"}
    assert "<svg" in (folder / "results" / "w8a8" / "result.html").read_text()


def test_nothing_is_left_running(folder: Path, record: Record) -> None:
    left = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(process.info["cmdline"] or [])
    ]
    assert left == []


def test_the_same_demo_again_is_only_read(folder: Path, record: Record) -> None:
    started = time.monotonic()
    done = demo(folder, "--json")
    assert Record.model_validate_json(done.stdout) == record
    assert time.monotonic() - started < 60
