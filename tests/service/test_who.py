"""Who may do what: every route with no token, a wrong one, another's, an organizer's."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from asking import body, submit
from fastapi.testclient import TestClient

from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import issue_token, revoke_tokens, rotate_token
from lowbit_ray.service.who import COOKIE

As = Callable[[str], dict[str, str]]

WRONG = {"Authorization": "Bearer lowbit_wrong"}
PUBLIC, OWNERS, SOMEBODY, ORGANIZERS = "public", "owners", "somebody", "organizers"
ROUTES: dict[tuple[str, str], str] = {
    ("GET", "/healthz"): PUBLIC,
    ("GET", "/readyz"): PUBLIC,
    ("GET", "/metrics"): PUBLIC,
    ("GET", "/api/rules"): PUBLIC,
    ("GET", "/api/tasks"): PUBLIC,
    ("GET", "/api/board/{task}"): PUBLIC,
    ("GET", "/api/board/{task}.csv"): PUBLIC,
    ("GET", "/api/submissions"): PUBLIC,
    ("GET", "/api/me"): SOMEBODY,
    ("POST", "/api/submissions"): SOMEBODY,
    ("GET", "/api/submissions/{id}"): OWNERS,
    ("DELETE", "/api/submissions/{id}"): OWNERS,
    ("GET", "/api/submissions/{id}/events"): OWNERS,
    ("GET", "/api/submissions/{id}/logs"): OWNERS,
    ("GET", "/api/submissions/{id}/logs/{name}"): OWNERS,
    ("PUT", "/api/submissions/{id}/flag"): ORGANIZERS,
    ("DELETE", "/api/submissions/{id}/flag"): ORGANIZERS,
    ("GET", "/api/audit"): ORGANIZERS,
}
"""Who may use each route; of OWNERS' ones the submission is a dev one of Ann's."""
WITHOUT_PERSON = {"/healthz", "/readyz", "/metrics"}


def ask(client: TestClient, method: str, path: str, headers: dict[str, str], name: str) -> int:
    address = path.format(id=name, name="candidate", task="qwen3-8b")
    content: dict[str, Any] = {}
    if method == "POST":
        content = {"json": body()}
    if method == "PUT":
        content = {"json": {"reason": "a reason"}}
    return client.request(method, address, headers=headers, **content).status_code


@pytest.fixture
def dev(client: TestClient, as_: As, ledger: FolderLedger) -> str:
    """A dev submission of Ann's with a log, cancelled, so that its event stream ends."""
    name: str = submit(client, as_("ann")).json()["id"]
    ledger.create(f"submissions/{name}/logs/candidate.txt", b"starting")
    client.delete(f"/api/submissions/{name}", headers=as_("ann"))
    return name


def test_every_route_of_the_schema_is_in_the_table(client: TestClient) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in paths.items() for method in methods} == set(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_route_is_open_to_those_it_is_for_and_to_nobody_else(
    client: TestClient, as_: As, dev: str, method: str, path: str
) -> None:
    who = ROUTES[method, path]
    good = {200, 201}
    nobody = ask(client, method, path, {}, dev)
    wrong = ask(client, method, path, WRONG, dev)
    another = ask(client, method, path, as_("bob"), dev)
    own = ask(client, method, path, as_("ann"), dev)
    organizers = ask(client, method, path, as_("olga"), dev)
    assert wrong == (200 if path in WITHOUT_PERSON else 401)
    assert organizers in good
    if who == PUBLIC:
        assert {nobody, another, own} <= good
    elif who == SOMEBODY:
        assert nobody == 401
        assert {another, own} <= good
    elif who == OWNERS:
        assert nobody in {401, 404}
        assert another in {403, 404}
        assert own in good
    else:
        assert (nobody, another, own) == (401, 403, 403)


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", "Basic YTpi", "bearer  x y", "Bearer " + "x" * 5000]
)
def test_a_header_that_is_no_token_is_refused_everywhere(client: TestClient, value: str) -> None:
    assert client.get("/api/rules", headers={"Authorization": value}).status_code == 401


def test_a_refusal_says_what_to_send(client: TestClient) -> None:
    answer = client.get("/api/me")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer" in answer.json()["detail"]


def test_a_token_issued_a_moment_ago_works_and_a_rotated_one_stops(
    client: TestClient, ledger: FolderLedger, eventually: Callable[..., None]
) -> None:
    client.app.state.desk.roster.fresh_s = 0.2  # type: ignore[attr-defined]
    client.get("/api/me", headers=WRONG)
    old = issue_token(ledger, "carl")
    eventually(lambda: client.get("/api/me", headers={"Authorization": f"Bearer {old}"}).status_code == 200)
    new = rotate_token(ledger, "carl")
    eventually(lambda: client.get("/api/me", headers={"Authorization": f"Bearer {old}"}).status_code == 401)
    assert client.get("/api/me", headers={"Authorization": f"Bearer {new}"}).status_code == 200
    revoke_tokens(ledger, "carl")
    eventually(lambda: client.get("/api/me", headers={"Authorization": f"Bearer {new}"}).status_code == 401)


def test_guessing_tokens_is_slowed_down(client: TestClient, as_: As) -> None:
    answers = [
        client.get("/api/rules", headers={"Authorization": f"Bearer guess-{n}"}).status_code
        for n in range(40)
    ]
    assert answers[0] == 401
    assert answers[-1] == 429
    assert client.get("/api/rules").status_code == 200


def test_tokens_are_stored_hashed(ledger: FolderLedger, tokens: dict[str, str]) -> None:
    stored = b"".join((ledger.root / key).read_bytes() for key in ledger.keys("people/"))
    assert re.search(rb'"sha256":"[0-9a-f]{64}"', stored)
    for token in tokens.values():
        assert token.encode() not in stored


def test_a_cookie_reads_and_never_writes(client: TestClient, tokens: dict[str, str], dev: str) -> None:
    answer = client.post("/login", data={"token": tokens["ann"]}, follow_redirects=False)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get(f"/api/submissions/{dev}").status_code == 200
    assert client.delete(f"/api/submissions/{dev}").status_code == 401
    assert client.post("/api/submissions", json=body()).status_code == 401
    client.post("/logout", follow_redirects=False)
    assert client.get(f"/api/submissions/{dev}").status_code == 404


def test_signing_in_leads_to_the_page_that_was_asked_for_and_nowhere_else(
    client: TestClient, tokens: dict[str, str], dev: str
) -> None:
    page = f"/submissions/{dev}"
    hidden = client.get(page, headers={"Accept": "text/html"})
    assert hidden.status_code == 404
    form = client.get(f"/login?next={page}", headers={"Accept": "text/html"}).text
    assert f"/login?next={page.replace('/', '%2F')}" in hidden.text or f"/login?next={page}" in hidden.text
    assert f'name="next" value="{page}"' in form
    data = {"token": tokens["ann"], "next": page}
    assert client.post("/login", data=data, follow_redirects=False).headers["location"] == page
    for elsewhere in (
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/a b",
        "/x\nSet-Cookie: a=b",
    ):
        data = {"token": tokens["ann"], "next": elsewhere}
        assert client.post("/login", data=data, follow_redirects=False).headers["location"] == "/"
    signed_in = client.get("/submissions/0123456789abcdef", headers={"Accept": "text/html"})
    assert "/login?next=" not in signed_in.text


def test_a_stale_cookie_is_nobody(client: TestClient) -> None:
    client.cookies.set(COOKIE, "lowbit_old")
    assert client.get("/api/rules").status_code == 200
    assert client.get("/api/me").status_code == 401


def test_a_wrong_token_does_not_log_in(client: TestClient) -> None:
    answer = client.post("/login", data={"token": "lowbit_wrong"}, follow_redirects=False)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_participant_who_submits_in_a_loop_is_slowed_down_and_an_organizer_is_not(
    client: TestClient, as_: As
) -> None:
    path = "/api/submissions/0123456789abcdef"
    ours = [client.delete(path, headers=as_("olga")).status_code for _ in range(40)]
    theirs = [client.delete(path, headers=as_("ann")) for _ in range(40)]
    assert set(ours) == {404}
    assert theirs[0].status_code == 404
    assert theirs[-1].status_code == 429
    assert int(theirs[-1].headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),  # a program
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Sec-Fetch-Site": "none"}, 303),
        ({"Origin": "http://testserver"}, 303),
        ({"Origin": "https://testserver"}, 303),  # before a proxy that ends TLS
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_another_sites_form_signs_nobody_in_or_out(
    client: TestClient, tokens: dict[str, str], headers: dict[str, str], status: int
) -> None:
    for path in ("/login", "/logout"):
        answer = client.post(path, data={"token": tokens["bob"]}, headers=headers, follow_redirects=False)
        assert answer.status_code == status
        assert ("set-cookie" in answer.headers) is (status == 303)


def test_a_form_of_many_fields_is_refused_and_no_fault_of_ours(client: TestClient) -> None:
    answer = client.post("/login", data={f"field{n}": "x" for n in range(9)})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "token"
