"""The doctor on this machine and on a small cluster: what is good, what is missing, and what to do about it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from fakes.cluster import FakeCluster

from lowbit_ray.doctor import host
from lowbit_ray.doctor.cluster import look_at_cluster
from lowbit_ray.doctor.examine import examine, put_back
from lowbit_ray.doctor.finding import Finding, examined, healthy
from lowbit_ray.doctor.host import look_at_host
from lowbit_ray.doctor.stores import look_at_hub, look_at_ledger, look_at_quarantine
from lowbit_ray.engines.quarantine import Quarantined, quarantine
from lowbit_ray.engines.sandbox import sandbox_support
from lowbit_ray.errors import LedgerError
from lowbit_ray.journal import read_actions
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.settings import Settings
from lowbit_ray.submission import now


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(ledger=str(tmp_path / "ledger"), cache=tmp_path / "cache")


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.what: finding for finding in findings}


def test_a_ledger_that_works_is_good_and_nothing_is_left_in_it(settings: Settings) -> None:
    assert look_at_ledger(settings).level == "good"
    assert FolderLedger(Path(settings.ledger)).keys("") == []


def test_a_ledger_that_cannot_be_written_is_bad(settings: Settings) -> None:
    Path(settings.ledger).write_text("no folder")
    findings = examined("ledger", lambda: look_at_ledger(settings))
    assert [finding.level for finding in findings] == ["bad"]
    assert not healthy(findings)


def test_a_ledger_that_overwrites_is_bad(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    create = FolderLedger.create

    def careless(self: FolderLedger, key: str, data: bytes) -> bool:
        entry = self.read(key)
        return create(self, key, data) if entry is None else self.swap(key, data, entry.version)

    monkeypatch.setattr(FolderLedger, "create", careless)
    finding = look_at_ledger(settings)
    assert finding.level == "bad"
    assert "created twice" in finding.found


def test_a_check_that_raises_is_a_bad_finding_and_the_others_are_made() -> None:
    def fails() -> Finding:
        raise LedgerError("away", remedy="Wait.")

    def breaks() -> Finding:
        raise OSError("no space")

    assert examined("x", fails)[0] == Finding(what="x", level="bad", found="away", remedy="Wait.")
    assert "no space" in examined("x", breaks)[0].found


def test_a_hub_that_does_not_answer_names_the_tasks_that_need_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    finding = look_at_hub(settings)
    assert finding.level == "warning"
    assert "qwen3-8b" in finding.remedy
    assert "smollm2-135m" not in finding.remedy


def test_no_hub_is_asked_where_no_task_needs_one(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    assert look_at_hub(settings.model_copy(update={"tasks": tmp_path / "tasks"})).level == "good"


def test_a_missing_vllm_is_bad(settings: Settings) -> None:
    lost = settings.model_copy(update={"vllm_command": "no-such-python -m vllm"})
    assert by_name(look_at_host(lost))["vLLM"].level == "bad"


def test_another_release_of_vllm_is_a_warning(settings: Settings, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 0.1.0\n")
    python.chmod(0o755)
    other = settings.model_copy(update={"vllm_command": f"{python} -m vllm.entrypoints.openai.api_server"})
    finding = by_name(look_at_host(other))["vLLM"]
    assert finding.level == "warning"
    assert "0.1.0" in finding.found


def test_a_full_disk_names_the_tasks_that_do_not_fit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shutil import _ntuple_diskusage  # type: ignore[attr-defined]

    monkeypatch.setattr(host.shutil, "disk_usage", lambda _: _ntuple_diskusage(100, 99, 2**30))
    finding = by_name(look_at_host(settings))["disk"]
    assert finding.level == "bad"
    assert "qwen35-27b" in finding.remedy


def test_gpus_are_told_with_driver_and_holders(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", imagined(tmp_path, monkeypatch))
    findings = by_name(look_at_host(settings))
    assert findings["GPU 0"].level == "good"
    assert "driver 580.1" in findings["GPU 0"].found
    assert findings["GPU 1"].level == "warning"
    assert "4711" in findings["GPU 1"].found


def imagined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from fakes.nvml import pynvml

    state = folder / "nvml.json"
    state.write_text(json.dumps({"count": 2, "1": {"used_gib": 2.0, "pids": [4711]}}))
    monkeypatch.setenv("FAKE_NVML", str(state))
    module: ModuleType = pynvml
    return module


def test_a_quarantined_node_is_told_and_put_back(settings: Settings) -> None:
    ledger = FolderLedger(Path(settings.ledger))
    quarantine(
        ledger, Quarantined(node="ab" * 28, address="10.0.0.7", reason="soiled", found_by="x", at=now())
    )
    finding = look_at_quarantine(settings)[0]
    assert "soiled" in finding.found
    assert "--release abababababab" in finding.remedy
    assert put_back(settings, "10.0.0.7")[0].level == "good"
    (action,) = read_actions(ledger)
    assert (action.what, action.subject) == ("quarantine ended", "10.0.0.7")
    assert look_at_quarantine(settings) == []
    assert put_back(settings, "10.0.0.7")[0].level == "bad"


def test_without_a_cluster_none_is_joined(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    findings = list(examine(settings))
    assert by_name(findings)["cluster"].level == "good"
    assert {"ledger", "hub", "GPU", "disk", "vLLM", "sandbox", "niceness", "cluster"} <= set(
        by_name(findings)
    )


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a head and one node, at Ray's own niceness."""
    nodes = FakeCluster(Path(tempfile.mkdtemp(prefix="lb-")), {"RAY_worker_niceness": "15"})
    try:
        nodes.start_head()
        nodes.add_node(1, label="H200")
        yield nodes.address
    finally:
        nodes.close()
        shutil.rmtree(nodes.root, ignore_errors=True)


@pytest.mark.timeout(300)
def test_each_node_of_a_cluster_is_asked_from_inside(
    settings: Settings, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    deadline = time.monotonic() + 180
    while "2 nodes, 1 H200" not in (findings := look_at_cluster(settings))[0].found:
        assert time.monotonic() < deadline, findings
    inside = [finding for finding in findings if finding.where]
    assert len({finding.where for finding in inside}) == 1
    niceness = by_name(inside)["niceness"]
    assert niceness.level == "bad"
    assert "at 15" in niceness.found
    assert "RAY_worker_niceness=0" in niceness.remedy
    pods = {f.what: f.level for f in findings if f.what.startswith("pod of")}
    assert pods["pod of qwen3-8b"] == "warning"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None or sandbox_support().user != "own",
    reason="needs root, setpriv and a sandbox",
)
def test_a_root_that_cannot_look_into_an_engine_is_told_so() -> None:
    """Without SYS_PTRACE, as in most containers."""
    code = "from lowbit_ray.doctor.host import _sandbox; print(_sandbox().model_dump_json())"
    seen = host._sandbox()
    assert (seen.level, "SYS_PTRACE" in (seen.remedy or "")) == ("good", False)
    held = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all", sys.executable, "-c", code]
    blind = json.loads(subprocess.run(held, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert blind["level"] == "bad"
    assert "SYS_PTRACE" in blind["remedy"]
