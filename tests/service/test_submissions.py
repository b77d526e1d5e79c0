"""Handing in, listing, looking at and cancelling submissions."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from asking import COMMIT, HUB, body, submit
from fastapi.testclient import TestClient

from lowbit_ray.lease import Lease
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.progress import Progress
from lowbit_ray.submission import Submission

As = Callable[[str], dict[str, str]]
Finished = Callable[..., Submission]


def test_a_submission_is_taken_in_and_waits_in_the_queue(
    client: TestClient, as_: As, ledger: FolderLedger
) -> None:
    answer = submit(client, as_("ann"), split="test", agent="helper 1")
    assert answer.status_code == 201
    view = answer.json()
    assert (view["status"], view["queue_position"]) == ("waiting", 1)
    assert (view["participant"], view["agent"]) == ("ann", "helper 1")
    assert view["solution"]["checkpoint"] == HUB
    assert answer.headers["location"] == f"/api/submissions/{view['id']}"
    stored = Submission.model_validate_json(
        (ledger.root / f"submissions/{view['id']}/submission.json").read_bytes()
    )
    assert stored.checkpoint.revision == COMMIT
    assert len(ledger.keys("accepted/")) == 1
    assert client.get(answer.headers["location"]).json() == view


def test_the_same_idempotency_key_gives_the_same_submission(
    client: TestClient, as_: As, ledger: FolderLedger
) -> None:
    headers = as_("ann") | {"Idempotency-Key": "night-run-7"}
    first, again = submit(client, headers), submit(client, headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert len(ledger.keys("accepted/")) == 1
    other = submit(client, headers, method="something else")
    assert other.status_code == 409
    assert other.json()["errors"][0]["field"] == "Idempotency-Key"
    assert submit(client, as_("bob") | {"Idempotency-Key": "night-run-7"}).json()["id"] != first.json()["id"]


def test_a_crash_between_the_two_objects_is_repaired_by_sending_it_again(
    client: TestClient, as_: As, ledger: FolderLedger
) -> None:
    headers = as_("ann") | {"Idempotency-Key": "k"}
    submit(client, headers)
    (key,) = ledger.keys("accepted/")
    (ledger.root / key).unlink()
    assert submit(client, headers).status_code == 200
    assert ledger.keys("accepted/") == [key]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task", "no-such-task"),
        ("task", ""),
        ("checkpoint", "owner/name@main"),
        ("checkpoint", f"owner@{COMMIT}"),
        ("checkpoint", f"../etc@{COMMIT}"),
        ("checkpoint", f"owner/..@{COMMIT}"),
        ("checkpoint", f"own er/name@{COMMIT}"),
        ("checkpoint", "/etc"),
        ("checkpoint", "./here"),
        ("checkpoint", "~/model"),
        ("checkpoint", "http://169.254.169.254/latest/meta-data"),
        ("checkpoint", "file:///etc/passwd"),
        ("checkpoint", "s3://elsewhere/model"),
        ("checkpoint", "s3://allowed@evil.example/model"),
        ("checkpoint", "s3://allowed/../other"),
        ("checkpoint", "s3://allowed//x"),
        ("checkpoint", "s3://allowed"),
        ("checkpoint", "s3://127.0.0.1/x"),
        ("checkpoint", "s3://allowed/a?b=c"),
        ("precision", "int8"),
        ("precision", "W8A8"),
        ("split", "final"),
        ("track", "both"),
        ("method", ""),
        ("method", "x" * 201),
        ("method", "two\nlines"),
        ("method", "\ud800"),
        ("method", "right\u202eto left"),
        ("agent", "\x00"),
        ("surprise", 1),
    ],
)
def test_what_is_wrong_is_refused_and_named(
    client: TestClient, as_: As, ledger: FolderLedger, field: str, value: object
) -> None:
    content = json.dumps(body(**{field: value})).encode()
    headers = as_("ann") | {"Content-Type": "application/json"}
    answer = client.post("/api/submissions", content=content, headers=headers)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"] == field
    assert ledger.keys("accepted/") == []


def test_repository_and_commit_say_the_same_as_one_address(client: TestClient, as_: As) -> None:
    apart = {"checkpoint": None, "repository": "owner/name", "commit": COMMIT}
    headers = as_("ann") | {"Idempotency-Key": "k"}
    made = submit(client, headers, **apart)
    assert made.status_code == 201
    assert made.json()["solution"]["checkpoint"] == HUB
    assert submit(client, headers).json()["id"] == made.json()["id"]


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"checkpoint": None}, "repository", "No checkpoint is named"),
        ({"checkpoint": None, "repository": "owner/name"}, "commit", "The commit is missing"),
        (
            {"checkpoint": None, "repository": "owner/name", "commit": "main"},
            "commit",
            "not of the right form",
        ),
        (
            {"checkpoint": None, "repository": "owner", "commit": COMMIT},
            "repository",
            "not of the right form",
        ),
        ({"checkpoint": None, "commit": COMMIT}, "repository", "No checkpoint is named"),
        (
            {"checkpoint": None, "repository": "owner/..", "commit": COMMIT},
            "repository",
            "not of the right form",
        ),
        ({"repository": "owner/name", "commit": COMMIT}, "repository", "Said twice"),
        ({"track": "engine"}, "engine", "The engine track needs an engine"),
        ({"engine": HUB}, "track", "The checkpoint track has no engine"),
        ({"split": "final"}, "split", "no such value"),
        ({"surprise": 1}, "surprise", "no such field"),
        ({"precision": "int8"}, "precision", "not of the right form"),
    ],
)
def test_a_refusal_names_the_field_and_what_was_expected(
    client: TestClient, as_: As, changes: dict[str, Any], field: str, message: str
) -> None:
    answer = submit(client, as_("ann"), **changes)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["message"]) == (field, message)
    assert error["expected"] or message in {"Said twice", "no such field"}


def test_a_body_that_is_no_json_says_where(client: TestClient, as_: As) -> None:
    headers = as_("ann") | {"Content-Type": "application/json"}
    answer = client.post("/api/submissions", content=b'{"task": x}', headers=headers)
    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert error["field"] == "body"
    assert error["message"].startswith("not JSON at character 9")


def test_an_allowed_bucket_is_taken(client: TestClient, as_: As) -> None:
    assert submit(client, as_("ann"), checkpoint="s3://allowed/models/w8a8").status_code == 201


def test_the_engine_track_needs_an_engine_of_an_allowed_address(client: TestClient, as_: As) -> None:
    assert submit(client, as_("ann"), track="engine").status_code == 422
    assert submit(client, as_("ann"), engine=HUB).status_code == 422
    refused = submit(client, as_("ann"), track="engine", engine="/usr/bin")
    assert refused.json()["errors"][0]["field"] == "engine"
    assert submit(client, as_("ann"), track="engine", engine=HUB).status_code == 201


def test_organizers_alone_submit_folders_and_references(client: TestClient, as_: As) -> None:
    assert submit(client, as_("olga"), checkpoint="/models/x").status_code == 201
    relative = submit(client, as_("olga"), checkpoint="./x").json()
    assert (relative["title"], relative["errors"][0]["field"]) == ("a relative folder", "checkpoint")
    assert submit(client, as_("ann"), reference=True).status_code == 403
    made = submit(client, as_("olga"), reference=True, split="test")
    assert made.json()["partition"] == "reference"


def test_a_finished_one_is_its_public_record(client: TestClient, finished: Finished, fixtures: Any) -> None:
    one = finished()
    record = client.get(f"/api/submissions/{one.id}").json()
    example = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())
    assert set(example) <= set(record)
    assert set(example["result"]) <= set(record["result"])
    assert record["flag"] is None


def test_no_domain_is_named_in_a_public_record(client: TestClient, finished: Finished) -> None:
    text = client.get(f"/api/submissions/{finished().id}").text
    for domain in ("math", "knowledge", "instruction", "retrieval"):
        assert domain not in text


def test_an_unfinished_one_has_the_keys_of_a_record(client: TestClient, as_: As, fixtures: Any) -> None:
    view = submit(client, as_("ann"), split="test").json()
    example = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())
    assert set(example) <= set(view)
    assert [stage["name"] for stage in view["stages"]] == [stage["name"] for stage in example["stages"]]


def test_a_running_one_says_how_far_it_is(client: TestClient, as_: As, ledger: FolderLedger) -> None:
    name = submit(client, as_("ann"), split="test").json()["id"]
    lease = Lease(holder="host:1:x", attempt=0, renewed_at=datetime.now(UTC))
    ledger.create(f"submissions/{name}/lease.json", lease.model_dump_json().encode())
    ledger.create(f"submissions/{name}/stages/build.json", b"{}")
    now = datetime.now(UTC)
    told = Progress(
        step="contract", what="reading headers", done=3, total=9, since=now, at=now, host="h", attempt=0
    )
    ledger.create(f"submissions/{name}/progress.json", told.model_dump_json().encode())
    client.app.state.desk.index.reread(name)  # type: ignore[attr-defined]
    view = client.get(f"/api/submissions/{name}").json()
    assert view["status"] == "running"
    assert view["queue_position"] is None
    assert {stage["name"]: stage["status"] for stage in view["stages"]} == {
        "build": "done",
        "contract": "running",
        "efficiency": "waiting",
        "quality": "waiting",
        "score": "waiting",
    }
    assert (view["progress"]["what"], view["progress"]["done"]) == ("reading headers", 3)


def test_dev_submissions_are_seen_by_their_participant_and_organizers(client: TestClient, as_: As) -> None:
    name = submit(client, as_("ann")).json()["id"]
    for who, status in (("ann", 200), ("olga", 200), ("bob", 404)):
        assert client.get(f"/api/submissions/{name}", headers=as_(who)).status_code == status
        listed = client.get("/api/submissions", headers=as_(who)).json()["items"]
        assert [one["id"] for one in listed] == ([name] if status == 200 else [])
    assert client.get(f"/api/submissions/{name}").status_code == 404


def test_lists_are_paged_the_newest_first_and_filtered(client: TestClient, as_: As) -> None:
    names = [submit(client, as_("ann" if n % 2 else "bob"), split="test").json()["id"] for n in range(5)]
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get("/api/submissions", params={"limit": "2"} | cursor).json()
        found += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == names[::-1]
    ours = client.get("/api/submissions", params={"participant": "ann"}).json()["items"]
    assert [one["id"] for one in ours] == [names[3], names[1]]
    assert client.get("/api/submissions", params={"status": "done"}).json()["items"] == []
    assert client.get("/api/submissions", params={"cursor": "../x"}).status_code == 422


def test_cancelling_stops_it_once_and_says_by_whom(client: TestClient, as_: As, ledger: FolderLedger) -> None:
    name = submit(client, as_("ann"), split="test").json()["id"]
    assert client.delete(f"/api/submissions/{name}", headers=as_("bob")).status_code == 403
    for _ in range(2):
        answer = client.delete(f"/api/submissions/{name}?reason=wrong%20commit", headers=as_("ann"))
        assert answer.status_code == 200
        assert answer.json()["status"] == "cancelled"
        assert answer.json()["cancelled"]["reason"] == "wrong commit"
    assert ledger.read(f"submissions/{name}/cancelled.json") is not None
    assert ledger.keys("audit/") == []


def test_what_is_finished_cannot_be_cancelled(client: TestClient, as_: As, finished: Finished) -> None:
    answer = client.delete(f"/api/submissions/{finished('ann').id}", headers=as_("ann"))
    assert answer.status_code == 409


def test_an_organizer_who_cancels_anothers_is_in_the_audit_log(
    client: TestClient, as_: As, ledger: FolderLedger
) -> None:
    name = submit(client, as_("ann"), split="test").json()["id"]
    assert client.delete(f"/api/submissions/{name}?reason=spam", headers=as_("olga")).status_code == 200
    (action,) = client.get("/api/audit", headers=as_("olga")).json()
    assert (action["by"], action["what"], action["subject"], action["reason"]) == (
        "olga",
        "cancelled",
        name,
        "spam",
    )


def test_a_reason_to_cancel_is_one_line_that_can_be_printed(client: TestClient, as_: As) -> None:
    name = submit(client, as_("ann")).json()["id"]
    for reason in ("\x1b[2J", "two\nlines", "x" * 201):
        answer = client.delete(f"/api/submissions/{name}", params={"reason": reason}, headers=as_("ann"))
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "query.reason"
    assert client.get(f"/api/submissions/{name}", headers=as_("ann")).json()["status"] == "waiting"


def test_a_refusal_says_why_and_what_to_change_in_record_and_list(
    client: TestClient, finished: Finished
) -> None:
    why = "config.json: rope_theta: differs from the source, found 1, expected 2"
    one = finished(result=None, status="rejected", error=why, findings=[why])
    view = client.get(f"/api/submissions/{one.id}").json()
    assert view["error"] == why
    (advice,) = view["advice"]
    assert "RoPE" in advice["meaning"]
    assert advice["change"]
    (item,) = client.get("/api/submissions").json()["items"]
    assert item["reason"] == why
    text = client.get(f"/api/submissions/{one.id}/events").text
    assert f'"reason":"{why}"' in text


def test_an_attempt_that_ended_by_a_fault_of_ours_is_counted(
    client: TestClient, as_: As, ledger: FolderLedger
) -> None:
    name = submit(client, as_("ann")).json()["id"]
    assert client.get(f"/api/submissions/{name}", headers=as_("ann")).json()["attempts"] == 0
    over = Lease(holder="h:1:x", attempt=1, renewed_at=datetime.now(UTC), released=True, ours=True)
    ledger.create(f"submissions/{name}/lease.json", over.model_dump_json().encode())
    client.app.state.desk.index.reread(name)  # type: ignore[attr-defined]
    view = client.get(f"/api/submissions/{name}", headers=as_("ann")).json()
    assert (view["status"], view["attempts"]) == ("waiting", 2)
