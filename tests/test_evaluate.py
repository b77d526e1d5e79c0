"""The driver on a real local Ray, with fake engines: every outcome of a submission, and what a crash leaves."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes.arena import HERE, Arena, Watching
from fakes.bigram import Bigram

from lowbit_ray.board import rank
from lowbit_ray.errors import PodError
from lowbit_ray.evaluate import evaluate
from lowbit_ray.lease import attempts
from lowbit_ray.progress import look, read_progress, start_log, start_log_names
from lowbit_ray.recheck import recheck
from lowbit_ray.records import Record
from lowbit_ray.report.advice import advice_on
from lowbit_ray.rules import load_rules
from lowbit_ray.session import ray_session
from lowbit_ray.stages.context import Cancelled

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ray_session(2, local=True):
        yield Arena.build(tmp_path_factory.mktemp("arena"))


def run(arena: Arena, checkpoint: Path, watch: Watching | None = None, **changes: Any) -> Record:
    submission = arena.submit(checkpoint, **changes)
    return evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=watch or Watching())


def engines(arena: Arena) -> list[psutil.Process]:
    """Processes of the arena's engines that are alive."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "engine.py" in " ".join(process.cmdline()) and str(arena.root) in " ".join(process.cmdline()):
                found.append(process)
    return found


def keys_of(value: Any, prefix: str = "") -> set[str]:
    if not isinstance(value, dict):
        return set()
    found = {f"{prefix}{key}" for key in value}
    return found.union(*(keys_of(inner, f"{prefix}{key}.") for key, inner in value.items()))


@pytest.fixture(scope="module")
def scored(arena: Arena) -> Record:
    return run(arena, arena.candidate("int8"))


def test_a_submission_becomes_a_scored_record(scored: Record) -> None:
    assert scored.status == "done"
    assert scored.result is not None, scored.error
    assert scored.result.score > 0
    assert scored.solution.detected_precision == "W8A8KV16"
    assert {stage.status for stage in scored.stages} == {"done"}
    assert scored.result.memory > 1  # fewer bits in the linear layers, the same KV
    assert scored.result.engine.hard_cap


def test_what_held_each_cap_is_recorded(scored: Record) -> None:
    assert scored.result is not None, scored.error
    held = {run.held_by for run in scored.result.engine.budget.values()}
    assert held <= {"cgroup", "watched"}  # whichever this machine allows, on a CPU
    assert len(held) == 1


def test_the_record_has_every_key_of_the_arenas(scored: Record, fixtures: Path) -> None:
    example = keys_of(json.loads((fixtures / "record-a553eefea2d24359.json").read_text()))
    ours = keys_of(json.loads(scored.to_json()))
    # the fake's task has one perplexity text of its own
    assert {key for key in example - ours if not key.startswith("result.kl.ppl.wikitext2")} == set()


def test_every_derived_number_of_the_record_can_be_recomputed(scored: Record) -> None:
    assert scored.result is not None, scored.error
    checks = recheck(json.loads(scored.to_json()), load_rules(), speed_floor=scored.result.speed_floor)
    assert {check.status for check in checks} == {"agrees"}


def test_kl_is_what_the_fakes_distributions_say(arena: Arena, scored: Record) -> None:
    assert scored.result is not None, scored.error
    exact = Bigram().kl_to(Bigram(noise=0.1))
    assert 0 < scored.result.kl.kl <= exact.max()
    assert scored.result.noise_floor.kl == pytest.approx(0.0, abs=1e-9)


def test_every_start_of_a_server_is_told_to_the_participant(arena: Arena, scored: Record) -> None:
    names = start_log_names(arena.ledger, scored.id)
    assert {name.partition("-")[0] for name in names} == {"timed", "anchor", "capped"}
    assert all((start_log(arena.ledger, scored.id, name) or "").strip() for name in names)


def test_progress_is_told_through_the_ledger(arena: Arena, scored: Record) -> None:
    progress = read_progress(arena.ledger, scored.id)
    assert progress is not None
    assert progress.attempt == 0  # and what it was at is over: its last words may be of no step
    moment = look(arena.ledger, scored.id)
    assert moment.over
    assert moment.progress is None  # nothing is at work any more
    assert "quality" in moment.steps
    assert scored.result is not None
    assert moment.score == scored.result.score


def test_steps_say_for_how_long_their_engine_was_answering(scored: Record) -> None:
    for step in scored.time_line:
        assert 0 <= step.busy_seconds <= step.pod_seconds + 0.01
        measures = step.name.startswith(
            ("timed", "checked", "anchor", "reusable", "capped", "later", "quality")
        )
        assert (step.busy_seconds > 0) == measures, step


def test_the_same_submission_again_is_only_read(arena: Arena, scored: Record) -> None:
    watch = Watching()
    again = evaluate(scored.id, ledger=arena.ledger, settings=arena.settings, watch=watch)
    assert again == scored
    assert watch.begun == []


def test_the_anchor_itself_scores_one_within_its_error(arena: Arena) -> None:
    record = run(
        arena, arena.candidate("itself", precision="bf16", noise=0.0), declared_precision="W16A16KV16"
    )
    result = record.result
    assert result is not None, record.error
    assert result.memory == 1.0
    assert result.kl.kl == pytest.approx(0.0, abs=1e-9)
    assert result.mean_drop == 0.0
    assert result.length_shift == 0.0
    assert result.quality.tier == "A"
    assert result.score_se is not None
    assert result.qualified
    # its speed is that of a fake on a machine that may be busy
    assert result.score == pytest.approx(1.0, abs=0.1)


def test_more_noise_reads_as_more_kl_and_reuses_the_anchors_part(arena: Arena, scored: Record) -> None:
    watch = Watching()
    record = run(arena, arena.candidate("noisy", noise=0.25), watch)
    assert record.result is not None, record.error
    assert scored.result is not None, scored.error
    assert record.result.kl.kl > 2 * scored.result.kl.kl
    assert not any("of the anchor" in what for what in watch.seen)
    reusable = [[step.name for step in one.time_line if "reusable" in step.name] for one in (scored, record)]
    assert (len(reusable[0]), reusable[1]) == (
        1,
        [],
    )  # the first evaluation of a task alone spends time on it


def test_a_kl_above_the_ceiling_scores_nothing(arena: Arena) -> None:
    record = run(arena, arena.candidate("far", noise=1.5))
    assert record.status == "rejected"
    reason = record.error or (record.result and record.result.reason)
    assert reason is not None
    assert "audit" in reason or "KL" in reason


@pytest.mark.parametrize(
    ("faults", "status", "words"),
    [
        ({"dead_at_load": True}, "failed", "the engine died"),
        ({"silent": True}, "failed", "did not answer within 20 s"),
        ({"hang": True}, "failed", "stopped answering"),
        ({"http_500_at": 9}, "failed", "HTTP 500"),
        ({"short": 3}, "failed", "tokens"),
        ({"dies_at": 9}, "failed", "died"),
        ({"error_stream_at": 9}, "failed", "error"),
        ({"no_logprobs": True}, "rejected", "no log-probabilities"),
        ({"nan_logprobs": True}, "failed", "log-probabilit"),
        ({"positive_logprobs": True}, "failed", "log-probabilit"),
        ({"wrong": True}, "rejected", "log-probabilities"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_broken_server_is_a_verdict_with_its_reason(
    arena: Arena, scored: Record, faults: dict[str, Any], status: str, words: str
) -> None:
    record = run(arena, arena.candidate(next(iter(faults)), faults=faults))
    assert record.status == status
    assert record.error is not None
    assert words in record.error
    assert "\x1b" not in record.error
    assert engines(arena) == []
    (advice,) = advice_on(record)
    assert "so there is no score" not in advice.meaning  # each is explained in words of its own
    assert advice.meaning != "A rule is broken, so the score is 0."


def test_a_candidate_that_would_answer_for_days_has_failed_at_the_tasks_limit(
    arena: Arena, tmp_path: Path
) -> None:
    """Each of its answers comes in time: no limit of a single request ends it."""
    own = Arena.build(tmp_path / "arena", limits={"checkpoint_gib": 2, "answering_hours": 0.5 / 3600})
    record = run(own, own.candidate("endless"))
    assert record.status == "failed"
    assert "the server is too slow" in (record.error or "")
    assert engines(own) == []


def test_a_checkpoint_that_does_not_load_fails_before_anything_is_timed(arena: Arena) -> None:
    """The candidate's server comes first: unsupported combinations end there, and no BF16 server is started."""
    watch = Watching()
    record = run(arena, arena.candidate("unloadable", faults={"dead_at_load": True}), watch)
    assert record.status == "failed"
    assert not any("timing" in what or "anchor" in what for what in watch.seen)


@pytest.mark.parametrize(
    ("field", "value"), [("hidden_size", 128), ("rope_theta", 500000.0), ("vocab_size", 300)]
)
def test_another_architecture_is_rejected_without_a_pod(arena: Arena, field: str, value: float) -> None:
    folder = arena.candidate(f"other-{field}")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {field: value}))
    watch = Watching()
    record = run(arena, folder, watch)
    assert record.status == "rejected"
    assert record.error is not None
    assert f"config.json: {field}" in record.error
    assert record.fault is not None
    assert (record.fault.kind, record.fault.rule) == ("contract", "configuration")
    assert record.fault.where == f"config.json: {field}"
    assert str(value).removesuffix(".0") in str(record.fault.seen)
    assert record.fault.limit
    assert "waiting for a pod" not in watch.seen


def test_a_folder_that_is_no_checkpoint_is_rejected_by_name(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no model")
    record = run(arena, tmp_path)
    assert record.status == "rejected"
    assert record.error is not None
    assert "safetensors" in record.error or "config.json" in record.error


def test_a_mistyped_address_is_no_score_of_0_and_costs_nothing(arena: Arena, tmp_path: Path) -> None:
    record = run(arena, tmp_path / "mistyped", split="test")
    assert record.status == "failed"
    assert record.result is None
    assert record.charged_hours == 0
    assert record.fault is not None
    assert record.fault.kind == "address"
    assert "Nothing lies" in advice_on(record)[0].meaning
    assert rank([record], load_rules()) == []  # the row that stood before it stays


def test_a_truncated_file_is_rejected_by_name(arena: Arena) -> None:
    folder = arena.candidate("truncated")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    record = run(arena, folder)
    assert record.status == "rejected"
    assert "model.safetensors" in (record.error or "")


def test_a_failing_anchor_is_our_fault_and_leaves_no_verdict(arena: Arena, tmp_path: Path) -> None:
    submission = arena.submit(arena.candidate("innocent"))
    engine = tmp_path / "engine"
    engine.write_text(
        '#!/bin/sh\nfor word in "$@"; do\n [ "$last" = --model ] && case "$word" in */sources/*) exit 3;; esac\n'
        f' last=$word\ndone\nexec {arena.settings.vllm_command} "$@"\n'
    )
    engine.chmod(0o755)
    broken = arena.settings.model_copy(update={"vllm_command": str(engine)})
    with pytest.raises(PodError, match="the anchor's server failed"):
        evaluate(submission.id, ledger=arena.ledger, settings=broken, watch=Watching())
    assert [lease.ours for lease in attempts(arena.ledger, submission.id)] == [True]
    watch = Watching()
    record = evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=watch)
    assert record.status == "done"
    assert "build" in watch.reused
    assert any(step.startswith("timed-") for step in watch.reused)


def test_a_cancelled_submission_is_not_measured(arena: Arena) -> None:
    submission = arena.submit(arena.candidate("cancelled"))
    assert arena.ledger.create(f"submissions/{submission.id}/cancelled.json", b"{}")
    with pytest.raises(Cancelled):
        evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=Watching())
    assert arena.ledger.read(f"submissions/{submission.id}/record.json") is None


def wait_for_step(arena: Arena, submission: str, kind: str, job: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 90
    while not any(f"/stages/{kind}" in key for key in arena.ledger.keys(f"submissions/{submission}/")):
        assert time.monotonic() < deadline, "the step was not reached"
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.05)


def wait_until_gone(arena: Arena) -> None:
    deadline = time.monotonic() + 30
    while left := engines(arena):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.1)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_driver_that_ends_early_leaves_nothing_running_and_is_resumed(
    tmp_path: Path, how: signal.Signals
) -> None:
    own = Arena.build(tmp_path / "arena", **HERE)
    submission = own.submit(own.candidate("int8"))
    job = own.job(submission)
    try:
        wait_for_step(own, submission.id, "timed", job)
        os.kill(job.pid, how)
        job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    wait_until_gone(own)
    again = own.job(submission)
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    record = Record.model_validate_json(output[output.index("\n{\n") :])
    assert record.status == "done"
    assert "kept from before" in output
    assert [lease.ours for lease in attempts(own.ledger, submission.id)] == [True, False]
