"""Addresses name exact bytes, and states follow from what the ledger holds."""

import pytest
from pydantic import ValidationError

from lowbit_ray.errors import SubmissionError
from lowbit_ray.submission import Address, Submission, new_id, now, parse_address, state_of

COMMIT = "b968826d9c46dd6066d109eabc6255188de91218"


def submission(**changes: object) -> Submission:
    fields = {
        "id": "a553eefea2d24359",
        "participant": "somebody",
        "task_id": "qwen3-8b",
        "checkpoint": {"kind": "folder", "location": "/checkpoint"},
        "method": "round to nearest",
        "created_at": now(),
    }
    return Submission.model_validate({**fields, **changes})


def test_an_exact_commit_is_an_address() -> None:
    address = parse_address(f"Qwen/Qwen3-8B@{COMMIT}")
    assert (address.kind, address.location, address.revision) == ("hub", "Qwen/Qwen3-8B", COMMIT)
    assert str(address) == f"Qwen/Qwen3-8B@{COMMIT}"


@pytest.mark.parametrize(
    "text",
    [
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-8B@main",
        f"Qwen/Qwen3-8B@{COMMIT[:12]}",
        f"Qwen@{COMMIT}",
        COMMIT,
        "",
        "a/b/c@" + COMMIT,
    ],
)
def test_a_branch_a_tag_or_a_short_commit_is_refused(text: str) -> None:
    with pytest.raises(SubmissionError, match="40-digit commit"):
        parse_address(text)


def test_paths_and_buckets_need_no_commit() -> None:
    assert parse_address("./checkpoint").kind == "folder"
    assert parse_address("s3://bucket/prefix").kind == "s3"
    with pytest.raises(ValidationError):
        Address(kind="folder", location="/x", revision=COMMIT)


def test_the_engine_track_needs_an_engine_and_the_other_has_none() -> None:
    with pytest.raises(ValidationError, match="engine"):
        submission(track="engine")
    with pytest.raises(ValidationError, match="engine"):
        submission(engine={"kind": "folder", "location": "/engine"})


@pytest.mark.parametrize("declared", ["W8A8", "8/8/8", "W8A8KV8; drop"])
def test_a_declared_precision_has_its_form(declared: str) -> None:
    with pytest.raises(ValidationError, match="declared_precision"):
        submission(declared_precision=declared)


def test_an_idempotency_key_gives_the_same_id() -> None:
    assert new_id("somebody", "key") == new_id("somebody", "key")
    assert new_id("somebody", "key") != new_id("somebodyk", "ey")
    assert new_id() != new_id()


def test_states_follow_from_the_objects() -> None:
    def status(
        *finished: str, leased: bool = False, cancelled: bool = False, verdict: str | None = None
    ) -> str:
        state = state_of(finished, leased=leased, cancelled=cancelled, verdict=verdict)
        return f"{state.status}({state.stage})" if state.stage else state.status

    assert status() == "waiting"
    assert status(leased=True) == "running(build)"
    assert status("build", "contract", leased=True) == "running(efficiency)"
    assert status("build", "contract", "efficiency", leased=True) == "running(quality)"
    assert status("build") == "waiting"
    assert status(cancelled=True) == "cancelled"
    assert status("build", verdict="rejected") == "rejected"
    assert status(verdict="done", cancelled=True) == "done"
