"""The service as a real process: its commands, its streams, slow and oversized bodies, its logs, its store away."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import httpx2
import pytest
from asking import HUB, TASK, body
from fakes.lossy import lossy
from fakes.s3 import CREDENTIALS, s3_server
from real_service import Served, served

from lowbit_ray.errors import InfraError
from lowbit_ray.lease import Lease
from lowbit_ray.ledger import FolderLedger, open_ledger
from lowbit_ray.people import issue_token
from lowbit_ray.progress import store_start_log
from lowbit_ray.service.client import Service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def store(folder: Path) -> FolderLedger:
    return FolderLedger(folder / "ledger")


@pytest.fixture(scope="module")
def people(store: FolderLedger) -> dict[str, str]:
    organizer = {
        "olga": issue_token(store, "olga", "organizer")
    }  # a token works a second after it was issued
    return organizer | {name: issue_token(store, name) for name in ("ann", "bob")}


@pytest.fixture(scope="module")
def service(store: FolderLedger, folder: Path, people: dict[str, str]) -> Iterator[Served]:
    with served(str(store.root), folder) as service:
        yield service


def started(service: Served, token: Path, *arguments: str) -> Any:
    """A command at work."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOWBIT_")}
    return subprocess.Popen(
        [sys.executable, "-c", "from lowbit_ray.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment
        | {"COLUMNS": "160", "NO_COLOR": "1", "LOWBIT_URL": service.url, "LOWBIT_TOKEN_FILE": str(token)},
    )


def lowbit(service: Served, token: Path, *arguments: str) -> Any:
    """A command from its start to its end."""
    with started(service, token, *arguments) as command:
        stdout, stderr = command.communicate(timeout=120)
        return subprocess.CompletedProcess(arguments, command.returncode, stdout, stderr)


def finish(store: FolderLedger, fixtures: Path, name: str) -> None:
    record = json.loads((fixtures / "record-smollm2-w8a8.json").read_text())
    record |= {"id": name, "participant": "ann", "task_id": TASK, "split": "test"}
    store.create(f"submissions/{name}/record.json", json.dumps(record).encode())


def lease(store: FolderLedger, name: str) -> None:
    held = Lease(holder=f"elsewhere:1:{name}", attempt=0, renewed_at=datetime.now(UTC))
    store.create(f"submissions/{name}/lease.json", held.model_dump_json().encode())


def test_a_submission_is_followed_by_command_from_the_queue_to_its_score(
    service: Served, store: FolderLedger, people: dict[str, str], fixtures: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(people["ann"] + "\n")
    handed_in = lowbit(
        service, token, "submit", HUB, "--task", TASK, "--method", "rtn", "--split", "test", "--json"
    )
    assert handed_in.returncode == 0, handed_in.stderr
    name = json.loads(handed_in.stdout)["id"]

    with started(service, token, "watch", name, "--json") as watch:
        moments = [json.loads(watch.stdout.readline())]
        lease(store, name)
        store.create(f"submissions/{name}/stages/build.json", b"{}")
        moments += [json.loads(watch.stdout.readline())]
        finish(store, fixtures, name)
        moments += [json.loads(line) for line in watch.stdout]
        assert watch.wait(60) == 0
    states = [moment["state"]["status"] for moment in moments]
    assert list(dict.fromkeys(states)) == ["waiting", "running", "done"]
    assert moments[-1]["score"] is not None
    assert "build" in moments[-1]["steps"]
    shown = lowbit(service, token, "show", name)
    assert "efficiency gain" in shown.stdout
    assert re.search(r"^verdict +(not )?qualified", shown.stdout, re.MULTILINE)
    assert re.search(r"^KL from BF16 +\d\.\d{4} ± \d\.\d{4} nats per token *$", shown.stdout, re.MULTILINE)
    board = lowbit(service, token, "board", TASK)
    assert name in board.stdout
    me = json.loads(lowbit(service, token, "whoami", "--json").stdout)
    assert me["name"] == "ann"
    assert next(quota for quota in me["quotas"] if quota["task"] == TASK)["scored"]["used"] == 1
    refused = lowbit(service, token, "cancel", name)
    assert refused.returncode == 2
    assert "finished" in refused.stderr


def words(done: Any) -> str:
    """Standard error without the terminal's line breaks."""
    return " ".join(done.stderr.split())


def test_submissions_are_listed_page_by_page(service: Served, people: dict[str, str], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(people["bob"])
    with Service(service.url, people["bob"]) as bob:
        names = [bob.submit(body(method=f"number {n}"))["id"] for n in range(3)]
    given = ["list", "--participant", "bob", "--status", "waiting", "--split", "dev", "--limit", "2"]
    page = json.loads(lowbit(service, token, *given, "--json").stdout)
    assert [item["id"] for item in page["items"]] == names[:0:-1]
    rest = json.loads(lowbit(service, token, *given, "--cursor", page["next"], "--json").stdout)
    assert (rest["items"][0]["id"], rest["next"]) == (names[0], None)
    shown = lowbit(service, token, *given).stdout
    assert all(name in shown for name in names[1:])
    assert re.search(r"waiting,\s+number", shown)
    assert f"--cursor {page['next']}" in shown
    for name in names:
        stopped = lowbit(service, token, "cancel", name, "--reason", "wrong commit")
        assert re.search(r"stopped by +bob: wrong commit", stopped.stdout)


def test_an_organizer_flags_by_command_and_reads_of_it(
    service: Served, store: FolderLedger, people: dict[str, str], fixtures: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(people["olga"])
    with Service(service.url, people["ann"]) as ann:
        name = ann.submit(body(split="test"))["id"]
    finish(store, fixtures, name)
    flagged = lowbit(service, token, "flag", name, "--reason", "remembers answers")
    assert flagged.returncode == 0, flagged.stderr
    assert "remembers answers" in flagged.stdout
    assert lowbit(service, token, "flag", name).returncode == 2
    lifted = lowbit(service, token, "flag", name, "--lift", "--json")
    assert json.loads(lifted.stdout)["flag"] is None
    actions = json.loads(lowbit(service, token, "audit", "--json").stdout)
    assert [action["what"] for action in actions if action["subject"] == name] == ["flagged", "flag lifted"]
    assert "remembers answers" in lowbit(service, token, "audit").stdout


def test_a_relative_folder_is_handed_in_by_its_whole_path(
    service: Served, people: dict[str, str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(people["olga"])
    done = lowbit(service, token, "submit", "./model", "--task", TASK, "--method", "m", "--json")
    view = json.loads(done.stdout)
    assert view["solution"]["checkpoint"] == str(Path.cwd() / "model")
    lowbit(service, token, "cancel", view["id"])


def test_a_token_file_that_holds_something_else_is_said(service: Served, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"\xff\xfe")
    done = lowbit(service, token, "whoami")
    assert done.returncode == 2
    assert "no token" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_say_what_the_service_refuses(
    service: Served, people: dict[str, str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    nobody = lowbit(service, token, "whoami")
    assert nobody.returncode == 2
    assert "LOWBIT_TOKEN_FILE" in nobody.stderr
    token.write_text(people["ann"])
    refused = lowbit(service, token, "submit", "/etc", "--task", TASK, "--method", "m")
    assert refused.returncode == 2
    assert "checkpoint: a folder of the cluster's own disks, which organizers alone may name" in words(
        refused
    )
    assert "found /etc, expected owner/name@<40-digit commit> or s3://bucket/prefix" in words(refused)
    branch = lowbit(service, token, "submit", "owner/name@main", "--task", TASK, "--method", "m")
    assert "found owner/name@main" in words(branch)
    assert words(branch).count("not the address of a checkpoint") == 1
    assert "git rev-parse HEAD" in words(branch)
    precision = lowbit(service, token, "submit", HUB, "--task", TASK, "--method", "m", "--precision", "int8")
    assert "precision: not of the right form, found int8, expected W<bits>A<bits>KV<bits>" in words(precision)
    task = lowbit(service, token, "board", "qwen")
    assert f"task: No such task, found qwen, expected one of {TASK}" in words(task)
    short = lowbit(service, token, "show", "12")
    assert "id: not of the right form, found 12, expected 16 hexadecimal digits" in words(short)
    forbidden = lowbit(service, token, "audit")
    assert "Organizers alone may do this" in forbidden.stderr
    missing = lowbit(service, token, "show", "f" * 16)
    assert missing.returncode == 2
    assert "No such submission" in missing.stderr
    assert "Traceback" not in missing.stderr + refused.stderr + nobody.stderr


def test_logs_are_streamed_to_their_participant_alone(
    service: Served, store: FolderLedger, people: dict[str, str], fixtures: Path
) -> None:
    with Service(service.url, people["ann"]) as ann:
        name = ann.submit(body(split="test"))["id"]
    lease(store, name)
    store_start_log(store, name, "candidate-timed", "loading weights")
    finish(store, fixtures, name)
    for who, seen in ((people["ann"], True), (people["bob"], False), (None, False)):
        headers = {"Authorization": f"Bearer {who}"} if who else {}
        text = httpx2.get(f"{service.url}/api/submissions/{name}/events", headers=headers, timeout=60).text
        assert ("loading weights" in text) is seen
        assert text.rstrip().rpartition("event: ")[2].startswith("end")


def test_a_follower_goes_on_after_the_service_was_killed(
    store: FolderLedger, people: dict[str, str], fixtures: Path, tmp_path: Path
) -> None:
    with served(str(store.root), tmp_path) as service:
        with Service(service.url, people["bob"]) as bob:
            name = bob.submit(body(split="test"))["id"]
        statuses: list[str] = []
        first = threading.Event()

        def follow() -> None:
            with Service(service.url, people["bob"]) as bob:
                for moment in bob.follow(name):
                    statuses.append(moment["status"])
                    first.set()

        thread = threading.Thread(target=follow)
        thread.start()
        assert first.wait(30)
        service.kill()
        finish(store, fixtures, name)
        service.start()
        thread.join(60)
        assert statuses[0] == "waiting"
        assert statuses[-1] == "done"


def test_streams_are_limited_and_given_back(
    service: Served, people: dict[str, str], eventually: Callable[[Callable[[], bool]], None]
) -> None:
    with Service(service.url, people["bob"]) as bob:
        name = bob.submit(body())["id"]
    url, headers = (
        f"{service.url}/api/submissions/{name}/events",
        {"Authorization": f"Bearer {people['bob']}"},
    )
    with httpx2.Client(headers=headers, timeout=60) as client, ExitStack() as open_streams:
        lines = [open_streams.enter_context(client.stream("GET", url)).iter_lines() for _ in range(8)]
        assert [next(each) for each in lines] == ["event: state"] * 8
        with client.stream("GET", url) as ninth:
            assert ninth.status_code == 429

    def room() -> bool:
        with httpx2.stream("GET", url, headers=headers, timeout=60) as stream:
            return stream.status_code == 200

    eventually(room)
    with Service(service.url, people["bob"]) as bob:
        bob.cancel(name)


def raw(service: Served, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """Sends bytes as they are, and reads until the connection ends."""
    with socket.create_connection(("127.0.0.1", service.port), 30) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:
                break
            time.sleep(pause_s)
        received = b""
        connection.settimeout(30)
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except OSError:
            pass
    return received


def head(length: str) -> bytes:
    return f"POST /api/submissions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(service: Served) -> None:
    answer = raw(service, head("Content-Length: 1000000000"))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"problem+json" in answer


def test_a_body_that_grows_too_large_is_refused_while_it_comes(service: Served) -> None:
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    answer = raw(service, head("Transfer-Encoding: chunked"), *[chunk] * 40)
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_that_never_comes_is_not_waited_for(service: Served) -> None:
    started = time.monotonic()
    answer = raw(service, head("Content-Length: 100"), b'{"task":')
    assert answer.startswith(b"HTTP/1.1 408")
    assert time.monotonic() - started < 25


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../../../etc/passwd",
        "/static/..%2f..%2f..%2fetc/passwd",
        "/static/%2e%2e/%2e%2e/settings.py",
        "/static//etc/passwd",
        "/api/submissions/..%2f..%2fpeople%2fann",
        "/api/submissions/0123456789abcdef/logs/..%2f..%2frecord",
        "/api/submissions/0123456789abcdef%00/logs",
        "/api/board/..%2f..%2frules",
        "/submissions/..%2f..%2f..%2fetc%2fpasswd",
    ],
)
def test_no_path_leaves_its_place(service: Served, people: dict[str, str], path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {people['ann']}\r\n\r\n"
    answer = raw(service, request.encode())
    assert answer.split(b" ", 2)[1] in {b"404", b"422", b"400"}, answer[:200]
    assert b"root:" not in answer
    assert b"sha256" not in answer


def test_a_store_that_is_away_is_said_and_loses_nothing(
    tmp_path: Path, eventually: Callable[[Callable[[], bool]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as address, lossy(address) as proxy:
        environment = CREDENTIALS | {"AWS_ENDPOINT_URL": proxy.address}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="arena")
        store = open_ledger("s3://arena/ledger")
        token = issue_token(store, "ann")
        with served("s3://arena/ledger", tmp_path, **environment) as service:
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{service.url}/api/submissions"
            sent = {
                "json": body(split="test"),
                "headers": headers | {"Idempotency-Key": "k"},
                "timeout": 60.0,
            }
            assert httpx2.post(url, **sent).status_code == 201  # type: ignore[arg-type]
            proxy.fate = lambda method, path: "unavailable"
            refused = httpx2.post(url, **sent | {"headers": headers | {"Idempotency-Key": "l"}})  # type: ignore[arg-type, operator]
            assert refused.status_code == 503
            assert refused.headers["content-type"] == "application/problem+json"
            assert len(httpx2.get(url).json()["items"]) == 1  # the index answers from memory
            assert httpx2.get(f"{service.url}/healthz").status_code == 200
            proxy.fate = lambda method, path: "pass"
            with Service(service.url, token) as ann:
                ann.submit(body(split="test"), "l")
            assert [method for method, path in proxy.seen if "/accepted/" in path].count("PUT") >= 2
            assert len(store.keys("accepted/")) == 2
            eventually(lambda: httpx2.get(f"{service.url}/readyz").json()["reason"] is None)


def test_a_service_that_is_not_there_is_an_error_in_bounded_time(tmp_path: Path) -> None:
    with Service("http://127.0.0.1:9", None) as nobody, pytest.raises(InfraError, match="does not answer"):
        nobody.board(TASK)


def test_tokens_are_in_no_log(service: Served, people: dict[str, str]) -> None:
    """The last test of this service: all that the others asked is in its log, at uvicorn's finest level."""
    ann = people["ann"]
    wrong = "lowbit_wrong_but_secret"
    asked: list[dict[str, Any]] = [
        {"method": "GET", "url": "/api/me", "headers": {"Authorization": f"Bearer {wrong}"}},
        {"method": "POST", "url": "/login", "data": {"token": wrong}},
        {"method": "POST", "url": "/login", "data": {"token": ann}},
        {"method": "GET", "url": "/api/me", "headers": {"Cookie": f"lowbit_token={ann}"}},
        {"method": "POST", "url": "/api/submissions", "content": b"{" + ann.encode()},
        {"method": "POST", "url": "/api/submissions", "headers": {"Idempotency-Key": f"{ann} {ann}"}},
    ]
    with httpx2.Client(base_url=service.url, timeout=30) as client:
        for question in asked:
            answer = client.request(**question)
            assert ann not in answer.text
            assert wrong not in answer.text
    text = service.log.read_text()
    assert "/api/me" in text
    for secret in (*people.values(), wrong):
        assert secret not in text
