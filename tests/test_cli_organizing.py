"""The organizers' commands as they are typed: tokens, and the ledger as a whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lowbit_ray.journal import read_actions
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import find_person, issue_token


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


def test_a_participant_is_given_quotas_of_their_own_and_loses_them_again(tmp_path: Path) -> None:
    lowbit(tmp_path, "token", "issue", "ann")
    before = json.loads(lowbit(tmp_path, "quota", "ann", "--json").stdout)
    general = {one["task"]: one["scored"]["limit"] for one in before["quotas"]}
    assert (before["scored_per_task"], before["dev_per_day"]) == (None, None)

    given = lowbit(tmp_path, "quota", "ann", "--scored", "7", "--dev-per-day", "0", "--json")
    assert given.returncode == 0, given.stderr
    quotas = json.loads(given.stdout)["quotas"]
    assert {one["scored"]["limit"] for one in quotas} == {7}
    assert {one["dev_today"]["limit"] for one in quotas} == {0}
    shown = lowbit(tmp_path, "quota", "ann").stdout
    assert "of their own  7 scored a task, 0 dev a task and day" in shown
    assert "7 scored a task" in lowbit(tmp_path, "token", "list").stdout

    left = json.loads(lowbit(tmp_path, "quota", "ann", "--scored", "default", "--json").stdout)
    assert (left["scored_per_task"], left["dev_per_day"]) == (None, 0)
    assert {one["task"]: one["scored"]["limit"] for one in left["quotas"]} == general


def test_each_change_of_a_quota_is_in_the_audit_log_and_looking_is_not(tmp_path: Path) -> None:
    lowbit(tmp_path, "token", "issue", "ann")
    lowbit(tmp_path, "quota", "ann")
    lowbit(tmp_path, "quota", "ann", "--scored", "7", "--dev-per-day", "default")
    _, action = read_actions(FolderLedger(tmp_path / "ledger"))
    assert (action.what, action.subject) == ("quotas set", "ann")
    assert action.reason == "scored_per_task 7, dev_per_day default"
    assert action.by.startswith("command line: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody", "--scored", "3"], "no such person"),
        (["olga", "--scored", "3"], "an organizer, who has no quotas"),
        (["ann", "--scored", "-1"], "--scored: no quota, found -1, expected a number from 0, or default"),
        (["ann", "--dev-per-day", "many"], "--dev-per-day: no quota, found many"),
    ],
)
def test_a_quota_that_cannot_be_given_changes_and_logs_nothing(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    ledger = FolderLedger(tmp_path / "ledger")
    issue_token(ledger, "ann")
    issue_token(ledger, "olga", "organizer")
    refused = lowbit(tmp_path, "quota", *arguments)
    assert refused.returncode == 2
    assert said in " ".join(refused.stderr.split())
    assert read_actions(ledger) == []
    assert find_person(ledger, "ann").scored_per_task is None


def test_a_token_that_cannot_be_issued_is_not_logged_as_issued(tmp_path: Path) -> None:
    lowbit(tmp_path, "token", "issue", "ann")
    assert lowbit(tmp_path, "token", "issue", "ann", "--organizer").returncode == 2
    assert lowbit(tmp_path, "token", "issue", "Ann Smith").returncode == 2
    assert lowbit(tmp_path, "token", "revoke", "ann", "--id", "00000000").returncode == 2
    assert [action.what for action in read_actions(FolderLedger(tmp_path / "ledger"))] == ["token issued"]


def test_what_changes_the_ledger_as_a_whole_is_logged(tmp_path: Path) -> None:
    lowbit(tmp_path, "token", "issue", "ann")
    lowbit(tmp_path, "ledger", "export", str(tmp_path / "all.tar.gz"))
    lowbit(tmp_path, "ledger", "import", str(tmp_path / "all.tar.gz"), ledger="other")
    lowbit(tmp_path, "ledger", "fsck", "--repair", ledger="other")
    actions = read_actions(FolderLedger(tmp_path / "other"))
    assert [(action.what, action.reason) for action in actions] == [
        ("token issued", ""),
        ("import", "all.tar.gz"),
        ("repair", ""),
    ]
