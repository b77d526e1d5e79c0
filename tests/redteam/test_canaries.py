"""What is hidden stays hidden: canaries in prompts, items and windows, and a search of all else that is kept."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from fakes.arena import Arena
from fastapi.testclient import TestClient
from red import CANARY, Submit
from rich.console import Console

from lowbit_ray.people import issue_token
from lowbit_ray.records import Record
from lowbit_ray.report.page import result_page
from lowbit_ray.report.terminal import render_record
from lowbit_ray.service.app import create_app

pytestmark = pytest.mark.timeout(240)

SPELLED = (
    CANARY,
    ", ".join(str(byte) for byte in CANARY.encode()),
    ",".join(str(b) for b in CANARY.encode()),
)
"""As a word, and as the token ids that a repr or a JSON list would show: the fake's tokens are bytes."""
HIDDEN = re.compile(r"^(?:submissions/[0-9a-f]+/stages/|tasks/[^/]+/anchors/[0-9a-f]+/)")
"""Keys of the ledger that hold prompts, outputs or answers, and are never shown."""


def leaks(text: str) -> list[str]:
    return [word for word in SPELLED if word in text.lower()]


def shown(arena: Arena) -> Iterator[tuple[str, str]]:
    """Everything that anybody might see: objects of the ledger, and a record's pages."""
    for key in arena.ledger.keys(""):
        entry = arena.ledger.read(key)
        if entry is None or HIDDEN.match(key):
            continue
        text = entry.data.decode(errors="replace")
        yield key, text
        if key.endswith("record.json"):
            record = Record.model_validate_json(text)
            yield f"page of {key}", result_page(record)
            console = Console(file=StringIO(), width=200)
            render_record(record, console)
            assert isinstance(console.file, StringIO)
            yield f"terminal of {key}", console.file.getvalue()


def served(arena: Arena, submissions: list[str]) -> Iterator[tuple[str, str]]:
    """What the service answers an organizer, who may see the most: pages, JSON, events and logs."""
    token = issue_token(arena.ledger, "olga", "organizer")
    with TestClient(create_app(arena.ledger, arena.settings, follow_s=0.05)) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        wait_for_index(client, submissions)
        paths = ["/", "/submissions", "/board/fake", "/api/board/fake", "/api/board/fake.csv", "/metrics"]
        paths += [
            "/api/submissions",
            "/api/audit",
            f"/compare?{'&'.join(f'id={name}' for name in submissions)}",
        ]
        for name in submissions:
            paths += [f"/submissions/{name}", f"/submissions/{name}/live"]
            paths += [f"/api/submissions/{name}{part}" for part in ("", "/events", "/logs")]
            logs = client.get(f"/api/submissions/{name}/logs").json()
            paths += [f"/api/submissions/{name}/logs/{log}" for log in logs]
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 200, path
            yield path, answer.text


def wait_for_index(client: TestClient, submissions: list[str]) -> None:
    deadline = time.monotonic() + 20
    while any(client.get(f"/api/submissions/{name}").status_code != 200 for name in submissions):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def ray_session_folder() -> Path:
    """What Ray keeps on the disk: the actors' and the driver's output, its own logs and events."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "session_latest"


def test_no_prompt_no_item_and_no_answer_is_anywhere_but_in_the_hidden_store(
    submit: Submit, arena: Arena, ray_session_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a submission that is scored and of two that fail, one of which tells all it knows."""
    records = [
        submit("honest.py", "Plain"),
        submit("cheats.py", "TellTale"),
        submit("cheats.py", "Plain", faults={"http_500_at": 30}),
    ]
    assert [record.status for record in records] == ["done", "failed", "failed"]
    hidden = "".join(
        (arena.ledger.read(key) or pytest.fail(key)).data.decode(errors="replace")
        for key in arena.ledger.keys("submissions/")
        if HIDDEN.match(key)
    )
    assert leaks(hidden), "the canary was asked and kept"
    pages = [*shown(arena), *served(arena, [record.id for record in records])]
    assert {name: words for name, text in pages if (words := leaks(text))} == {}
    assert any(name.endswith("/events") for name, _ in pages)
    assert any("/logs/" in name for name, _ in pages)
    printed = capfd.readouterr()
    assert leaks(printed.out + printed.err) == []
    kept = [path for path in ray_session_folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.parent.name == "logs" for path in kept)
    assert [str(path) for path in kept if leaks(path.read_text(errors="replace"))] == []
