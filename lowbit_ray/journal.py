"""The append-only log of what organizers did: one object an action under `audit/`, never changed or removed."""

from __future__ import annotations

import getpass
import os
import secrets
from datetime import UTC, datetime

from lowbit_ray.ledger import Ledger
from lowbit_ray.rules import _Described

__all__ = ["Action", "account", "log_action", "read_actions"]


class Action(_Described):
    """One action of an organizer's."""

    at: datetime
    by: str
    """The organizer's name, or the account that ran the command."""
    what: str
    """Such as `token issued`, `quotas set`, `flagged`, `cancelled`."""
    subject: str
    """A participant's name or a submission's id."""
    reason: str = ""


def account() -> str:
    """The account that runs this process, for `by`."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may give its user no name
        return f"uid {os.getuid()}"


def log_action(ledger: Ledger, by: str, what: str, subject: str, reason: str = "") -> Action:
    """Appends an action; LedgerError where it could not be stored, and then the action must not happen."""
    action = Action(at=datetime.now(UTC), by=by, what=what, subject=subject, reason=reason)
    name = f"{action.at:%Y%m%dT%H%M%S.%f}-{secrets.token_hex(4)}"
    ledger.create(f"audit/{name}.json", action.model_dump_json().encode())
    return action


def read_actions(ledger: Ledger, *, after: str = "", limit: int = 100) -> list[Action]:
    """The oldest `limit` actions after a time such as `20261130T100000`."""
    keys = ledger.keys("audit/", after=f"audit/{after}")[:limit]
    entries = (ledger.read(key) for key in keys)
    return [Action.model_validate_json(entry.data) for entry in entries if entry is not None]
