"""The organizers' commands as they are typed: tokens, and the ledger as a whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lowbit_ray.journal import read_actions
from lowbit_ray.ledger import FolderLedger


def lowbit(folder: Path, *arguments: str, ledger: str = "ledger") -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOWBIT_")}
    return subprocess.run(
        [sys.executable, "-c", "from lowbit_ray.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env=environment
        | {
            "NO_COLOR": "1",
            "LOWBIT_LEDGER": str(folder / ledger),
            "LOWBIT_TOKEN_FILE": str(folder / "token"),
        },
    )


def test_tokens_are_issued_rotated_revoked_and_logged(tmp_path: Path) -> None:
    issued = lowbit(tmp_path, "token", "issue", "ann").stdout.strip()
    assert issued.startswith("lowbit_")
    rotated = json.loads(lowbit(tmp_path, "token", "rotate", "ann", "--json").stdout)["token"]
    assert rotated != issued
    (person,) = json.loads(lowbit(tmp_path, "token", "list", "--json").stdout)
    assert [token["revoked_at"] is None for token in person["tokens"]] == [False, True]
    assert lowbit(tmp_path, "token", "revoke", "ann").stdout.strip() == "1 revoked"
    actions = read_actions(FolderLedger(tmp_path / "ledger"))
    assert [action.what for action in actions] == ["token issued", "tokens rotated", "tokens revoked"]
    assert all(action.subject == "ann" and action.by.startswith("command line: ") for action in actions)
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))
    assert issued.encode() not in everything
    assert rotated.encode() not in everything


def test_a_saved_token_is_for_its_user_alone(tmp_path: Path) -> None:
    done = lowbit(tmp_path, "token", "issue", "olga", "--organizer", "--save")
    assert done.returncode == 0, done.stderr
    assert "lowbit_" not in done.stdout
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert lowbit(tmp_path, "token", "revoke", "nobody").returncode == 2


def test_a_ledger_is_moved_and_checked(tmp_path: Path) -> None:
    lowbit(tmp_path, "token", "issue", "ann")
    assert lowbit(tmp_path, "ledger", "export", str(tmp_path / "all.tar.gz")).stdout.strip() == "2 objects"
    moved = lowbit(tmp_path, "ledger", "import", str(tmp_path / "all.tar.gz"), "--json", ledger="other")
    assert json.loads(moved.stdout)["created"] == 2
    assert lowbit(tmp_path, "ledger", "fsck", ledger="other").stdout.strip() == "the ledger is whole"
    (tmp_path / "other" / "people" / "ann.json").write_text("{}")
    broken = lowbit(tmp_path, "ledger", "fsck", ledger="other")
    assert broken.returncode == 1
    assert "people/ann.json" in broken.stdout
