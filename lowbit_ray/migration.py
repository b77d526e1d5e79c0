"""Records of earlier versions, brought to the present one as they are read; what is stored never changes.

A record says its version in `schema_version`. Whoever adds a required field to a record, renames one or changes
its meaning, raises `records.SCHEMA` and adds the step from the version before to `STEPS`. What an earlier version
did not measure becomes None or empty there, never a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from lowbit_ray.errors import LedgerError
from lowbit_ray.records import SCHEMA, Record

__all__ = ["migrate", "parse_record"]

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


def parse_record(data: bytes | str) -> Record:
    """A stored record, whichever version it has; LedgerError where it is none."""
    try:
        return Record.model_validate(migrate(json.loads(data)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where, found = ".".join(map(str, first["loc"])), first["msg"]
    except (ValueError, AttributeError) as error:
        where, found = "record", str(error)[:200]
    raise LedgerError(
        "a stored record cannot be read",
        where=where,
        found=found,
        remedy="A later release made it, or it was changed by hand.",
    )
