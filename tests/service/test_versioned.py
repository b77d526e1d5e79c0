"""What a client has already is not sent again, and who asks for the head alone gets it."""

from collections.abc import Callable

import pytest
from asking import TASK, submit
from fastapi.testclient import TestClient

from lowbit_ray.ledger import FolderLedger
from lowbit_ray.service.app import create_app
from lowbit_ray.settings import Settings
from lowbit_ray.submission import Submission

As = Callable[[str], dict[str, str]]
Finished = Callable[..., Submission]
TAGGED = ("/api/rules", f"/api/board/{TASK}", f"/api/board/{TASK}.csv", "/api/submissions/{id}")


@pytest.mark.parametrize("path", TAGGED)
def test_an_answer_that_has_not_changed_is_not_sent_again(
    client: TestClient, finished: Finished, path: str
) -> None:
    address = path.format(id=finished().id)
    client.app.state.desk.index.refresh()  # type: ignore[attr-defined]  # else it may come between two requests
    first = client.get(address)
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"another", {tag}', "*"):
        again = client.get(address, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    other = client.get(address, headers={"If-None-Match": '"another"'})
    assert (other.status_code, other.content) == (200, first.content)


def test_a_board_that_has_changed_is_sent(
    client: TestClient, finished: Finished, eventually: Callable[..., None]
) -> None:
    address = f"/api/board/{TASK}"
    empty = client.get(address).headers["etag"]
    finished()
    eventually(lambda: client.get(address, headers={"If-None-Match": empty}).status_code == 200)


def test_a_flag_changes_the_records_tag(client: TestClient, as_: As, finished: Finished) -> None:
    one = finished()
    address = f"/api/submissions/{one.id}"
    before = client.get(address).headers["etag"]
    client.put(f"{address}/flag", json={"reason": "remembers answers"}, headers=as_("olga"))
    assert client.get(address, headers={"If-None-Match": before}).status_code == 200


def test_every_process_of_the_service_gives_the_same_tag(
    client: TestClient, ledger: FolderLedger, settings: Settings, finished: Finished
) -> None:
    address = f"/api/submissions/{finished().id}"
    with TestClient(create_app(ledger, settings)) as other:
        assert other.get(address).headers["etag"] == client.get(address).headers["etag"]


def test_a_tag_shows_nobody_what_is_not_theirs(client: TestClient, as_: As) -> None:
    name = submit(client, as_("ann")).json()["id"]
    address = f"/api/submissions/{name}"
    tag = client.get(address, headers=as_("ann")).headers["etag"]
    assert client.get(address, headers={"If-None-Match": tag}).status_code == 404
    assert client.get(address, headers=as_("bob") | {"If-None-Match": "*"}).status_code == 404


def test_nothing_of_ours_is_kept_for_somebody_else(client: TestClient, finished: Finished) -> None:
    one = finished()
    for path in ("/", f"/board/{TASK}", f"/submissions/{one.id}", f"/api/submissions/{one.id}", "/api/me"):
        answer = client.get(path)
        assert answer.headers["cache-control"] == "private, no-cache", path
        assert answer.headers["vary"] == "Authorization, Cookie", path
    assert "immutable" in client.get("/static/lowbit.css?v=0123456789ab").headers["cache-control"]
    assert "immutable" not in client.get("/static/none.css?v=0123456789ab").headers["cache-control"]
    assert "immutable" not in client.get("/static/lowbit.css").headers["cache-control"]


@pytest.mark.parametrize(
    "path", ["/", f"/board/{TASK}", "/healthz", "/api/rules", f"/api/board/{TASK}.csv", "/static/lowbit.css"]
)
def test_head_is_the_answer_of_get_without_its_body(client: TestClient, path: str) -> None:
    head, whole = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-type", "content-length", "etag", "content-security-policy"):
        assert head.headers.get(name) == whole.headers.get(name), name


def test_head_of_a_stream_is_refused_at_once(client: TestClient, as_: As) -> None:
    name = submit(client, as_("ann"), split="test").json()["id"]
    answer = client.head(f"/api/submissions/{name}/events")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"
    assert client.head(f"/api/submissions/{'f' * 16}").status_code == 404
