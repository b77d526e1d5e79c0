"""Records of earlier versions, brought to the present one as they are read; what is stored never changes.

A record says its version in `schema_version`. Whoever adds a required field to a record, renames one or changes
its meaning, raises `SCHEMA` and adds the step from the version before to `STEPS`. What an earlier version
did not measure becomes None or empty there, never a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["SCHEMA", "migrate"]

SCHEMA = 2
"""The present version."""

Json = dict[str, Any]


def _busy_hosts_are_seen(record: Json) -> Json:
    """1 → 2. The first records of version 1 were made before the CPU use of others was measured."""
    result = record.get("result")
    if result is not None and "foreign_cpu" not in result:
        record = record | {"result": result | {"foreign_cpu": {}}}
    return record


STEPS: dict[int, Callable[[Json], Json]] = {1: _busy_hosts_are_seen}
"""From the version named to the next one."""


def migrate(record: Json) -> Json:
    """A record's JSON in the present version; ValueError where it has none that this release knows."""
    version = record.get("schema_version")
    if not isinstance(version, int) or not 1 <= version <= SCHEMA:
        raise ValueError(f"schema_version {version!r}"[:80] + f", this release knows 1 to {SCHEMA}")
    for step in range(version, SCHEMA):
        record = STEPS[step](record)
    return record | {"schema_version": SCHEMA}
