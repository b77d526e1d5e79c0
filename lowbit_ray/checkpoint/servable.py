"""Whether a vLLM release serves a checkpoint, decided by a table (`data/servable.yaml`), not by code.

The verdict is about loading: no, if that release lacks the method or refuses one of its settings; review, if
a person must judge. How fast or how precisely a device computes it is `executed.py`'s matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from lowbit_ray.checkpoint.formats.scheme import Plan

__all__ = ["Servable", "servable", "traits_of"]

TABLE = Path(__file__).parent / "data" / "servable.yaml"
Verdict = Literal["yes", "no", "review"]
_RANK: Mapping[Verdict, int] = {"yes": 0, "review": 1, "no": 2}


class Servable(BaseModel):
    """One release's verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    release: str
    verdict: Verdict
    reasons: tuple[str, ...]
    """Why not, what to judge, or what to know."""


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    return table


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(release).split("."))


def traits_of(plan: Plan | None) -> dict[str, object]:
    """What the table's rules look at."""
    if plan is None:
        return {"method": "plain"}
    kv = plan.kv
    about_kv = {"kv_bits": kv.bits, "kv_kind": kv.kind, "kv_strategy": kv.strategy} if kv else {}
    return {**plan.traits, **about_kv, "method": plan.method, "review": bool(plan.reviews)}


def servable(plan: Plan | None) -> tuple[Servable, ...]:
    """The verdict of each release in the table."""
    traits = traits_of(plan)
    return tuple(_judge(str(release), traits) for release in _table()["releases"])


def _judge(release: str, traits: Mapping[str, object]) -> Servable:
    table = _table()
    method = traits["method"]
    entry = table["methods"].get(method)
    found: list[tuple[Verdict, str]] = []
    if entry is None:
        found.append(("review", f"{method} is not in the table"))
    elif not _covers(entry, release):
        found.append(("no", entry.get("reason", f"{method} is not in this release")))
    elif "review" in entry:
        found.append(("review", entry["review"]))
    for rule in table["rules"]:
        if _applies(rule, release, traits):
            found.append((rule["verdict"], rule["reason"]))
    verdict = max((verdict for verdict, _ in found), key=lambda name: _RANK[name], default="yes")
    return Servable(release=release, verdict=verdict, reasons=tuple(dict.fromkeys(why for _, why in found)))


def _covers(entry: Mapping[str, Any], release: str) -> bool:
    """Whether `since` ≤ release < `before`."""
    number = _number(release)
    return ("since" not in entry or _number(entry["since"]) <= number) and (
        "before" not in entry or number < _number(entry["before"])
    )


def _applies(rule: Mapping[str, Any], release: str, traits: Mapping[str, object]) -> bool:
    trait = rule["trait"]
    if not _covers(rule, release) or trait not in traits:
        return False
    if "methods" in rule and traits["method"] not in rule["methods"]:
        return False
    value = traits[trait]
    values = value if isinstance(value, tuple) else (value,)
    return any(one in rule["in"] if "in" in rule else one not in rule["not_in"] for one in values)
