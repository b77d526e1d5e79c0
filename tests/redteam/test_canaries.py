"""What is hidden stays hidden: canaries in prompts, items and windows, and a search of all else that is kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from fakes.arena import Arena
from red import CANARY, Submit
from rich.console import Console

from lowbit_ray.records import Record
from lowbit_ray.report.page import result_page
from lowbit_ray.report.terminal import render_record

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


@pytest.fixture
def ray_logs() -> Path:
    """What Ray keeps of the actors' and the driver's output."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "session_latest" / "logs"


def test_no_prompt_no_item_and_no_answer_is_anywhere_but_in_the_hidden_store(
    submit: Submit, arena: Arena, ray_logs: Path, capfd: pytest.CaptureFixture[str]
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
    found = {name: words for name, text in shown(arena) if (words := leaks(text))}
    assert found == {}
    printed = capfd.readouterr()
    assert leaks(printed.out + printed.err) == []
    logs = {path.name: path.read_text(errors="replace") for path in ray_logs.glob("*") if path.is_file()}
    assert logs
    assert {name for name, text in logs.items() if leaks(text)} == set()
