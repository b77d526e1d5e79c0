"""People and their tokens: hashed, issued, rotated, revoked; and the log of what organizers do."""

import threading
from pathlib import Path

import pytest

from lowbit_ray.errors import ConfigError
from lowbit_ray.journal import log_action, read_actions
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import (
    find_person,
    fingerprint,
    issue_token,
    list_people,
    revoke_tokens,
    rotate_token,
    set_quotas,
)


@pytest.fixture
def ledger(tmp_path: Path) -> FolderLedger:
    return FolderLedger(tmp_path)


def live(ledger: FolderLedger, name: str) -> set[str]:
    return {token.sha256 for token in find_person(ledger, name).live_tokens()}


def test_a_token_is_stored_as_its_hash_alone(ledger: FolderLedger) -> None:
    token = issue_token(ledger, "ann")
    assert live(ledger, "ann") == {fingerprint(token)}
    assert token.encode() not in (ledger.root / "people/ann.json").read_bytes()
    assert len(token) > 40


def test_a_person_may_have_several_tokens_and_lose_one(ledger: FolderLedger) -> None:
    first, second = issue_token(ledger, "ann"), issue_token(ledger, "ann")
    by_hash = {token.sha256: token.id for token in find_person(ledger, "ann").tokens}
    assert revoke_tokens(ledger, "ann", by_hash[fingerprint(first)]) == 1
    assert live(ledger, "ann") == {fingerprint(second)}
    assert revoke_tokens(ledger, "ann") == 1
    assert live(ledger, "ann") == set()


def test_rotating_revokes_all_others(ledger: FolderLedger) -> None:
    issue_token(ledger, "ann")
    issue_token(ledger, "ann")
    new = rotate_token(ledger, "ann")
    assert live(ledger, "ann") == {fingerprint(new)}


def test_a_role_is_given_once(ledger: FolderLedger) -> None:
    issue_token(ledger, "olga", "organizer")
    issue_token(ledger, "olga")
    assert find_person(ledger, "olga").organizer
    with pytest.raises(ConfigError, match="another role"):
        issue_token(ledger, "olga", "participant")


@pytest.mark.parametrize("name", ["", "Ann", "../ann", "a/b", ".ann", "a" * 65, "ann\n"])
def test_a_name_is_plain(ledger: FolderLedger, name: str) -> None:
    with pytest.raises(ConfigError):
        issue_token(ledger, name)
    with pytest.raises(ConfigError, match="no such person"):
        rotate_token(ledger, name)
    assert list_people(ledger) == []


def test_tokens_issued_at_once_are_all_kept(ledger: FolderLedger) -> None:
    issued: list[str] = []
    threads = [threading.Thread(target=lambda: issued.append(issue_token(ledger, "ann"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live(ledger, "ann") == {fingerprint(token) for token in issued}


def test_actions_are_read_in_their_order_and_after_a_time(ledger: FolderLedger) -> None:
    done = [log_action(ledger, "olga", what, "ann") for what in ("issued", "rotated", "revoked")]
    assert read_actions(ledger) == done
    assert read_actions(ledger, limit=2) == done[:2]
    assert read_actions(ledger, after=f"{done[0].at:%Y%m%dT%H%M%S.%f}-z") == done[1:]


def test_one_broken_object_locks_nobody_else_out(ledger: FolderLedger) -> None:
    issue_token(ledger, "ann")
    ledger.create("people/bob.json", b"half of a per")
    assert [person.name for person in list_people(ledger)] == ["ann"]


def test_a_quota_of_ones_own_changes_nothing_else(ledger: FolderLedger) -> None:
    issue_token(ledger, "ann")
    set_quotas(ledger, "ann", {"dev_per_day": 50})
    ann = set_quotas(ledger, "ann", {"scored_per_task": 7})
    assert (ann.scored_per_task, ann.dev_per_day) == (7, 50)
    assert find_person(ledger, "ann") == ann
    assert len(ann.live_tokens()) == 1
    assert set_quotas(ledger, "ann", {"dev_per_day": None}).dev_per_day is None


def test_organizers_have_no_quotas_to_be_set(ledger: FolderLedger) -> None:
    issue_token(ledger, "olga", "organizer")
    with pytest.raises(ConfigError, match="no quotas"):
        set_quotas(ledger, "olga", {"scored_per_task": 7})
