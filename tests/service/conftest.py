"""A service over a folder ledger, its people, and a client for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from asking import COMMIT, TASK
from fastapi.testclient import TestClient

from lowbit_ray.index import accept
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import issue_token
from lowbit_ray.service.app import create_app
from lowbit_ray.settings import Settings
from lowbit_ray.submission import Address, Submission, new_id


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(ledger=str(tmp_path / "ledger"), cache=tmp_path / "cache", buckets=("allowed",))


@pytest.fixture
def ledger(settings: Settings) -> FolderLedger:
    return FolderLedger(Path(settings.ledger))


@pytest.fixture
def tokens(ledger: FolderLedger) -> dict[str, str]:
    """Of two participants and an organizer."""
    return {
        "ann": issue_token(ledger, "ann"),
        "bob": issue_token(ledger, "bob"),
        "olga": issue_token(ledger, "olga", "organizer"),
    }


@pytest.fixture
def client(ledger: FolderLedger, settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(ledger, settings, follow_s=0.05), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def as_(tokens: dict[str, str]) -> Callable[[str], dict[str, str]]:
    """Headers of one of them."""
    return lambda name: {"Authorization": f"Bearer {tokens[name]}"}


@pytest.fixture
def finished(ledger: FolderLedger, fixtures: Path) -> Callable[..., Submission]:
    """Writes a submission with a record of real numbers."""

    def write(participant: str = "ann", split: str = "test", **changes: Any) -> Submission:
        submission = Submission(
            id=new_id(),
            participant=participant,
            task_id=TASK,
            split="test" if split == "test" else "dev",
            checkpoint=Address(kind="hub", location="owner/name", revision=COMMIT),
            method="round to nearest",
            created_at=datetime.now(UTC),
        )
        record = json.loads((fixtures / "record-smollm2-w8a8.json").read_text())
        record |= {"id": submission.id, "participant": participant, "task_id": TASK, "split": split} | changes
        ledger.create(f"submissions/{submission.id}/record.json", json.dumps(record).encode())
        accept(ledger, submission)  # last, so that no index sees it without its record
        return submission

    return write


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits until something is so."""

    def wait(so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not so():
            assert time.monotonic() < deadline, "it did not come to be"
            time.sleep(0.02)

    return wait
