"""The board over HTTP, as JSON and as CSV, and what a rate limit lets through."""

import csv
import io
import time
from collections.abc import Callable

import pytest
from asking import TASK
from fastapi.testclient import TestClient

from lowbit_ray.service.limits import Buckets, Rate
from lowbit_ray.submission import Submission

Eventually = Callable[[Callable[[], bool]], None]


def test_the_board_has_each_participants_last_scored_submission(
    client: TestClient, finished: Callable[..., Submission], eventually: Eventually
) -> None:
    ann, bob = finished("ann"), finished("bob")
    finished("carl", split="dev")
    eventually(lambda: len(client.get(f"/api/board/{TASK}").json()["rows"]) == 2)
    board = client.get(f"/api/board/{TASK}").json()
    assert {row["submission"] for row in board["rows"]} == {ann.id, bob.id}
    assert (board["task"], board["rules_version"]) == (TASK, "23")


def test_the_csv_has_the_rows_of_the_json(
    client: TestClient, finished: Callable[..., Submission], eventually: Eventually
) -> None:
    finished("ann")
    eventually(lambda: len(client.get(f"/api/board/{TASK}").json()["rows"]) == 1)
    answer = client.get(f"/api/board/{TASK}.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(answer.text))
    (same,) = client.get(f"/api/board/{TASK}").json()["rows"]
    assert set(row) == set(same)
    assert float(row["score"]) == same["score"]


@pytest.mark.parametrize("method", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)"])
def test_no_cell_of_the_csv_is_a_formula(
    client: TestClient, finished: Callable[..., Submission], eventually: Eventually, method: str
) -> None:
    one = finished("ann")
    path = client.app.state.desk.ledger.root / f"submissions/{one.id}/record.json"  # type: ignore[attr-defined]
    path.write_text(path.read_text().replace('"method": "', f'"method": "{method} '))
    eventually(lambda: client.app.state.desk.index.get(one.id) is not None)  # type: ignore[attr-defined]
    client.app.state.desk.index.reread(one.id)  # type: ignore[attr-defined]
    text = client.get(f"/api/board/{TASK}.csv").text
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["method"].startswith(f"'{method}")


def test_an_unknown_task_is_named(client: TestClient) -> None:
    for path in ("/api/board/nothing", "/api/board/nothing.csv"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.json()["errors"][0]["field"] == "task"


def test_rules_are_the_published_file(client: TestClient) -> None:
    rules = client.get("/api/rules").json()
    assert rules["version"] == "23"
    assert rules["gate"]["quality"]["margins"] == {"A": 0.03, "B": 0.05}


def test_a_task_says_nothing_of_its_hidden_material(client: TestClient) -> None:
    text = client.get("/api/tasks").text
    for word in ("docstrings", "package", "window", "column", "wikitext"):
        assert word not in text


def test_a_bucket_gives_its_burst_and_refills() -> None:
    bucket = Buckets(Rate(burst=3, per_second=20))
    assert [bucket.take("a") == 0 for _ in range(4)] == [True, True, True, False]
    assert bucket.take("b") == 0
    assert 0 < bucket.wait_s("a") <= 0.05
    time.sleep(0.06)
    assert bucket.take("a") == 0
