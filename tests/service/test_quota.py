"""Quotas by the rules: 3 scored a task, dev ones a day; what was ours or was cancelled gives its place back."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import TASK, submit
from fastapi.testclient import TestClient

from lowbit_ray.index import Index
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import Person, set_quotas
from lowbit_ray.rules import load_rules
from lowbit_ray.service.quota import limit_of, take
from lowbit_ray.tasks import load_task

As = Callable[[str], dict[str, str]]


def end(ledger: FolderLedger, fixtures: Path, name: str, **changes: Any) -> None:
    record = json.loads((fixtures / "record-smollm2-w8a8.json").read_text())
    record |= {"id": name, "participant": "ann", "task_id": TASK, "split": "test"} | changes
    ledger.create(f"submissions/{name}/record.json", json.dumps(record).encode())


def test_the_fourth_scored_submission_of_a_task_is_refused(client: TestClient, as_: As) -> None:
    for _ in range(3):
        assert submit(client, as_("ann"), split="test").status_code == 201
    refused = submit(client, as_("ann"), split="test")
    assert refused.status_code == 403
    assert refused.json()["errors"][0]["field"] == "split"
    assert submit(client, as_("ann"), split="test", task="qwen35-27b").status_code == 201
    assert submit(client, as_("ann"), split="dev").status_code == 201
    assert submit(client, as_("bob"), split="test").status_code == 201


@pytest.mark.parametrize(
    ("status", "hours", "counts"),
    [("done", 1.0, True), ("rejected", 0.0, True), ("failed", 0.5, True), ("failed", 0.0, False)],
)
def test_a_verdict_counts_unless_the_fault_was_ours(
    client: TestClient, as_: As, ledger: FolderLedger, fixtures: Path, status: str, hours: float, counts: bool
) -> None:
    names = [submit(client, as_("ann"), split="test").json()["id"] for _ in range(3)]
    end(ledger, fixtures, names[0], status=status, charged_hours=hours)
    assert (submit(client, as_("ann"), split="test").status_code == 403) is counts


def test_a_cancelled_one_gives_its_place_back(client: TestClient, as_: As) -> None:
    names = [submit(client, as_("ann"), split="test").json()["id"] for _ in range(3)]
    client.delete(f"/api/submissions/{names[0]}", headers=as_("ann"))
    assert submit(client, as_("ann"), split="test").status_code == 201
    assert submit(client, as_("ann"), split="test").status_code == 403


def test_a_repeated_request_takes_no_second_place(client: TestClient, as_: As) -> None:
    for _ in range(5):
        assert submit(client, as_("ann") | {"Idempotency-Key": "k"}, split="test").status_code in {200, 201}
    me = client.get("/api/me", headers=as_("ann")).json()
    quota = next(one for one in me["quotas"] if one["task"] == TASK)
    assert quota["scored"] == {"used": 1, "limit": 3}
    assert quota["dev_today"]["used"] == 0


def test_the_days_dev_submissions_are_limited_by_the_task(
    client: TestClient, as_: As, ledger: FolderLedger
) -> None:
    limit = load_task(TASK).limits.dev_per_day
    index, ann = Index(ledger), Person(name="ann")
    for n in range(limit):
        assert take(ledger, index, ann, load_task(TASK), "dev", f"{n:016x}", limit)
    refused = submit(client, as_("ann"))
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert "00:00 UTC" in refused.json()["detail"]


def test_a_quota_of_ones_own_holds_in_the_service(
    client: TestClient, as_: As, ledger: FolderLedger, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    headers = as_("ann")
    set_quotas(ledger, "ann", {"scored_per_task": 1})
    client.app.state.desk.roster.fresh_s = 0.1  # type: ignore[attr-defined]

    def limit() -> int:
        quotas = client.get("/api/me", headers=headers).json()["quotas"]
        return next(int(one["scored"]["limit"]) for one in quotas if one["task"] == TASK)

    eventually(lambda: limit() == 1)
    assert submit(client, headers, split="test").status_code == 201
    refused = submit(client, headers, split="test")
    assert refused.status_code == 403
    assert refused.json()["detail"].startswith("1 scored submissions a task")


def test_of_many_at_once_only_as_many_get_a_place_as_there_are(ledger: FolderLedger) -> None:
    ann, task = Person(name="ann"), load_task(TASK)
    got: list[bool] = []

    def one(n: int) -> None:
        got.append(take(ledger, Index(ledger), ann, task, "test", f"{n:016x}", 3))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(got) == 3


def test_a_person_may_have_quotas_of_their_own_and_organizers_have_none() -> None:
    task, rules = load_task(TASK), load_rules()
    assert limit_of(Person(name="a", scored_per_task=7), task, rules, "test") == 7
    assert limit_of(Person(name="a"), task, rules, "test") == 3
    assert limit_of(Person(name="a", role="organizer"), task, rules, "test") is None
