"""Recomputes every derived number of a record from its measured ones, and says where they differ.

A record prints numbers rounded; what is computed from a rounded number is uncertain by as much. The tolerance of
each check is therefore half a unit in the last printed place of the derived number, plus what the formula moves
when each of its rounded inputs moves by half a unit of its own. Numbers with more than six decimals are exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from lowbit_ray.errors import ConfigError
from lowbit_ray.rules import Rules, _Frozen, first_workload, load_rules
from lowbit_ray.score import Measured, Scored, score
from lowbit_ray.tasks import list_tasks, load_task

__all__ = ["Check", "measured_of", "recheck", "recheck_file"]

EXACT_DECIMALS = 6
Status = Literal["agrees", "differs", "unknown"]
Pick = Callable[[Scored], float | bool | None]


class Check(_Frozen):
    """One derived number."""

    field: str
    recorded: float | bool | None
    recomputed: float | bool | None
    """None where the record lacks an input."""
    tolerance: float
    status: Status


def recheck_file(path: Path) -> list[Check]:
    """Checks a record in a file, under the published rules and the speed floor that it was judged by.

    Raises ConfigError where the file is no record.
    """
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the record cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise ConfigError(f"the record is not JSON: {error}", where=str(path)) from None
    if not isinstance(record, dict):
        raise ConfigError("the record is not an object", where=str(path), found=type(record).__name__)
    rules = load_rules()
    floor = _get(record, "result.speed_floor", optional=True) or _floor(record, rules)
    return recheck(record, rules, speed_floor=floor)


def _floor(record: dict[str, Any], rules: Rules) -> float:
    """The speed floor of a record that does not name it: its task's, or the rules'."""
    name = record.get("task_id")
    return load_task(name).floor(rules) if name in list_tasks() else rules.rules.speed_floor


def recheck(record: dict[str, Any], rules: Rules, *, speed_floor: float) -> list[Check]:
    """Checks the parsed JSON of a record; ConfigError names a measured field that is missing or no number."""
    result = _get(record, "result")
    if result is None or result.get("score") is None:
        raise ConfigError("the record has no result to recompute", where="result", found=record.get("status"))
    measured = measured_of(record, speed_floor=speed_floor)
    scored = _score(measured, rules)
    wobbles = [_score(moved, rules) for moved in _moved(measured)]
    checks = [
        _check(field, _get(record, field, optional=True), pick, scored, wobbles)
        for field, pick in _fields(scored)
    ]
    checks += [_mirror(record, field, source) for field, source in _MIRRORS]
    checks += [check for side in ("peak_memory", "anchor_peak_memory") for check in _peaks(result, side)]
    return checks


def measured_of(record: dict[str, Any], *, speed_floor: float) -> Measured:
    """The score's inputs as a record holds them."""
    order = list(_get(record, "result.efficiency"))

    def numbers(field: str, part: str = "") -> dict[str, float]:
        return {name: _number(record, f"result.{field}.{name}{part}") for name in order}

    admitted = _get(record, "result.admitted", optional=True)
    refused = not _number(record, "result.score") if admitted is None else admitted is False
    broken = _get(record, "result.reason", optional=True) if refused else None
    return Measured(
        efficiency=numbers("efficiency"),
        anchor_efficiency=numbers("anchor_efficiency"),
        peaks_gib=numbers("peak_memory", ".peak_gib"),
        anchor_peaks_gib=numbers("anchor_peak_memory", ".peak_gib"),
        length_shift=_number(record, "result.length_shift"),
        mean_drop=_number(record, "result.mean_drop"),
        mean_drop_se=_get(record, "result.mean_drop_se", optional=True),
        kl=_number(record, "result.kl.kl"),
        kl_se=_number(record, "result.kl.kl_se"),
        tier=_get(record, "result.quality.tier"),
        speed_floor=speed_floor,
        broken=broken,
    )


_MIRRORS = (
    ("result.peak_gib", "result.peak_memory.{first}.peak_gib"),
    ("result.bf16_peak_gib", "result.anchor_peak_memory.{first}.peak_gib"),
    ("result.speed_serve", "result.speeds.{first}"),
)
"""Fields that repeat another one."""


def _fields(scored: Scored) -> list[tuple[str, Pick]]:
    plain = ("speed", "memory", "memory_saved", "efficiency_gain", "drift", "score", "score_se", "qualified")
    fields: list[tuple[str, Pick]] = [(f"result.{name}", attrgetter(name)) for name in plain]
    fields += [(f"result.speeds.{name}", partial(_entry, "speeds", name)) for name in scored.speeds]
    fields += [(f"result.memories.{name}", partial(_entry, "memories", name)) for name in scored.memories]
    return fields


def _entry(table: str, name: str, scored: Scored) -> float:
    value: float = getattr(scored, table)[name]
    return value


def _check(field: str, recorded: Any, pick: Pick, scored: Scored, wobbles: list[Scored]) -> Check:
    value = pick(scored)
    if value is None or recorded is None:
        status: Status = "agrees" if value is None and recorded is None else "unknown"
        return Check(field=field, recorded=recorded, recomputed=value, tolerance=0.0, status=status)
    if isinstance(value, bool):
        return Check(
            field=field,
            recorded=recorded,
            recomputed=value,
            tolerance=0.0,
            status="agrees" if recorded is value else "differs",
        )
    moves = math.fsum(abs(float(moved) - value) for moved in map(pick, wobbles) if moved is not None)
    tolerance = _half_unit(recorded) + moves + 1e-12
    status = "agrees" if abs(recorded - value) <= tolerance else "differs"
    return Check(field=field, recorded=recorded, recomputed=value, tolerance=tolerance, status=status)


def _mirror(record: dict[str, Any], field: str, source: str) -> Check:
    first = first_workload(record["result"]["efficiency"])
    recorded, other = (_get(record, path.format(first=first), optional=True) for path in (field, source))
    status: Status = "unknown" if recorded is None or other is None else "agrees"
    if status == "agrees" and abs(recorded - other) > 1e-12:
        status = "differs"
    return Check(field=field, recorded=recorded, recomputed=other, tolerance=0.0, status=status)


def _peaks(result: dict[str, Any], side: str) -> list[Check]:
    """peak = weights + KV + other, for engines that keep accounts."""
    checks = []
    for name, peak in result[side].items():
        parts = [peak.get(part) for part in ("weights_gib", "kv_gib", "other_gib")]
        if any(part is None for part in parts):
            continue
        tolerance = math.fsum(map(_half_unit, [*parts, peak["peak_gib"]])) + 1e-12
        total = math.fsum(parts)
        status: Status = "agrees" if abs(total - peak["peak_gib"]) <= tolerance else "differs"
        checks.append(
            Check(
                field=f"result.{side}.{name}.peak_gib",
                recorded=peak["peak_gib"],
                recomputed=total,
                tolerance=tolerance,
                status=status,
            )
        )
    return checks


def _score(measured: Measured, rules: Rules) -> Scored:
    try:
        return score(measured, rules)
    except ValueError as error:
        raise ConfigError(
            "the record's measured numbers cannot be scored", where="result", found=error
        ) from None


def _moved(measured: Measured) -> list[Measured]:
    """`measured` with one rounded input at a time moved by half a unit in its last place."""
    moved: list[Measured] = []
    changes: dict[str, Any]
    for field in ("length_shift", "mean_drop", "mean_drop_se", "kl", "kl_se"):
        value = getattr(measured, field)
        if value is not None and _half_unit(value):
            changes = {field: value + _half_unit(value)}
            moved.append(replace(measured, **changes))
    for field in ("efficiency", "anchor_efficiency", "peaks_gib", "anchor_peaks_gib"):
        values: dict[str, float] = getattr(measured, field)
        for name, value in values.items():
            if _half_unit(value):
                changes = {field: {**values, name: value + _half_unit(value)}}
                moved.append(replace(measured, **changes))
    return moved


def _half_unit(value: float) -> float:
    """Half a unit in the last printed place; 0 for numbers printed in full."""
    text = repr(float(value))
    if "e" in text:
        return 0.0
    decimals = len(text.partition(".")[2])
    return 0.0 if decimals > EXACT_DECIMALS or value == 0 else 0.5 * 10.0**-decimals


def _number(record: dict[str, Any], path: str) -> float:
    value = _get(record, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError("a measured field is no number", where=path, found=repr(value), expected="a number")
    return float(value)


def _get(record: dict[str, Any], path: str, *, optional: bool = False) -> Any:
    value: Any = record
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            if optional:
                return None
            raise ConfigError(
                "a measured field is missing from the record", where=path, remedy="Is it a whole record?"
            )
        value = value[part]
    return value
