"""Flags, and the log of what organizers did."""

from collections.abc import Callable

from asking import TASK
from fastapi.testclient import TestClient

from lowbit_ray.ledger import FolderLedger
from lowbit_ray.submission import Submission

As = Callable[[str], dict[str, str]]


def test_a_flagged_record_stays_visible_with_the_reason_and_counts_on_no_board(
    client: TestClient, as_: As, finished: Callable[..., Submission]
) -> None:
    one = finished()
    flag = f"/api/submissions/{one.id}/flag"
    assert client.put(flag, json={"reason": "remembers answers"}, headers=as_("olga")).status_code == 200
    assert client.get(f"/api/submissions/{one.id}").json()["flag"]["reason"] == "remembers answers"
    (row,) = client.get(f"/api/board/{TASK}").json()["rows"]
    assert (row["rank"], row["flagged"]) == (None, "remembers answers")
    assert client.delete(flag, headers=as_("olga")).json()["flag"] is None
    (row,) = client.get(f"/api/board/{TASK}").json()["rows"]
    assert (row["rank"], row["flagged"]) == (1, None)


def test_every_action_is_logged_in_order_and_stays(
    client: TestClient, as_: As, finished: Callable[..., Submission], ledger: FolderLedger
) -> None:
    one = finished()
    flag = f"/api/submissions/{one.id}/flag"
    client.put(flag, json={"reason": "first"}, headers=as_("olga"))
    client.delete(flag, headers=as_("olga"))
    actions = client.get("/api/audit", headers=as_("olga")).json()
    assert [(action["what"], action["subject"]) for action in actions] == [
        ("flagged", one.id),
        ("flag lifted", one.id),
    ]
    assert len(ledger.keys("audit/")) == 2
    after = actions[-1]["at"][:10].replace("-", "") + "T235959"
    assert client.get(f"/api/audit?after={after}", headers=as_("olga")).json() == []


def test_a_flag_needs_a_reason(client: TestClient, as_: As, finished: Callable[..., Submission]) -> None:
    answer = client.put(f"/api/submissions/{finished().id}/flag", json={}, headers=as_("olga"))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "reason"
