"""Nodes that are out of service: a device was not clean, and nobody is measured there until somebody has looked.

    nodes/<node id>.json     created once by whoever found it, removed by `lowbit doctor --release ID`

A node that is restarted has a new id and is not in quarantine: every pod looks at its devices before it is used.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

from pydantic import ValidationError

from lowbit_ray.ledger import Ledger
from lowbit_ray.rules import _Frozen

__all__ = ["Quarantined", "list_quarantined", "quarantine", "quarantined_nodes", "release"]

PREFIX = "nodes/"


class Quarantined(_Frozen):
    """One node, and why."""

    node: str
    """Ray's id."""
    address: str
    reason: str
    found_by: str
    """The submission whose evaluation found it, or a person's name."""
    at: datetime


def quarantine(ledger: Ledger, found: Quarantined) -> bool:
    """Takes a node out of service; False where it is out already."""
    return ledger.create(f"{PREFIX}{found.node}.json", found.model_dump_json().encode())


def quarantined_nodes(ledger: Ledger) -> set[str]:
    """Ids of all nodes that are out of service, by one listing: whoever waits for a pod asks every other second."""
    return {key.removeprefix(PREFIX).removesuffix(".json") for key in ledger.keys(PREFIX)}


def list_quarantined(ledger: Ledger) -> dict[str, Quarantined]:
    """All nodes that are out of service, by id."""
    found: dict[str, Quarantined] = {}
    for key in ledger.keys(PREFIX):
        entry = ledger.read(key)
        if entry is None:  # released meanwhile
            continue
        with contextlib.suppress(ValidationError):  # not ours
            one = Quarantined.model_validate_json(entry.data)
            found[one.node] = one
    return found


def release(ledger: Ledger, node: str) -> list[str]:
    """Puts nodes back into service; `node` is an id, the beginning of one, or an address. The ids released."""
    released = []
    for one in list_quarantined(ledger).values():
        if node and (one.node.startswith(node) or one.address == node):
            key = f"{PREFIX}{one.node}.json"
            entry = ledger.read(key)
            if entry is not None and ledger.remove(key, entry.version):
                released.append(one.node)
    return released
