"""Where GPU time goes, from records and the tables kept beside them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_hours import BETWEEN, RESULTS, read, table

ROOT = Path(__file__).parents[2]


def record(path: Path, *, gpus: int = 2, charged_hours: float = 0.0, busy: bool = True) -> Path:
    steps = [
        ("build", 9.0, 0.0, 0.0),
        ("timed-ab", 100.0, 100.0, 60.0),
        ("capped-serve-ab", 50.0, 50.0, 45.0),
    ]
    line = [
        {"name": name, "seconds": seconds, "pod_seconds": pod} | ({"busy_seconds": used} if busy else {})
        for name, seconds, pod, used in steps
    ]
    host = {"gpus": [{}] * gpus}
    path.write_text(json.dumps({"time_line": line, "host": host, "charged_hours": charged_hours}))
    return path


def test_seconds_are_times_the_pods_gpus_and_steps_without_a_pod_are_left_out(tmp_path: Path) -> None:
    found = read(record(tmp_path / "record.json"))
    assert [(row.step, row.held, row.busy) for row in found.rows] == [
        ("timed", 200.0, 120.0),
        ("capped serve", 100.0, 90.0),
    ]
    assert found.source == "requests"
    assert found.total.ratio == pytest.approx(0.7)


def test_what_was_charged_beside_the_steps_is_a_row_of_its_own(tmp_path: Path) -> None:
    found = read(record(tmp_path / "record.json", charged_hours=0.1))
    assert (found.rows[-1].step, found.rows[-1].held) == (BETWEEN, pytest.approx(60.0))
    assert found.total.ratio == pytest.approx(210 / 360)


def test_a_record_that_did_not_measure_it_has_no_ratio(tmp_path: Path) -> None:
    found = read(record(tmp_path / "record.json", busy=False))
    assert found.source is None
    assert found.total.ratio is None
    assert "—" in table(found)


def test_the_kept_h200_runs_have_the_ratio_of_their_tables() -> None:
    for path in sorted(RESULTS.glob("h200-*.json")):
        if "time_line" not in json.loads(path.read_text()):
            continue
        found = read(path)
        beside = path.with_name(f"stages-{path.stem.removeprefix('h200-')}.json")
        if found.source == "GPU":
            kept = json.loads(beside.read_text())
            assert found.total.busy == pytest.approx(kept["busy_seconds"], abs=1.0)
        assert found.total.ratio is not None
        assert 0 < found.total.ratio < 1


def test_the_command_prints_tables_and_json_and_refuses_what_is_no_record(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks.gpu_hours", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    path = str(record(tmp_path / "record.json"))
    assert "goal 0.9" in run(path).stdout
    (found,) = json.loads(run(path, "--json").stdout)
    assert found["ratio"] == pytest.approx(0.7)
    (tmp_path / "no.json").write_text("[]")
    refused = run(str(tmp_path / "no.json"))
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
