"""What stands around a checkpoint and changes what is executed: environment variables and flags.

The environment is held to an allow-list, as engines read hundreds of variables and each release adds some;
flags to a list of what they change. Both are data (`data/traps.yaml`). Keys of config.json are
`architecture.py`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lowbit_ray.checkpoint.findings import Finding, show

__all__ = ["allowed_environment", "check_arguments", "check_environment"]

TABLE = Path(__file__).parent / "data" / "traps.yaml"


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    return table


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an engine of ours may see, to be recorded beside its results."""
    return {name: value for name, value in environment.items() if _allowed(name)}


def check_environment(environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding for each variable that is not on the allow-list."""
    reasons: Mapping[str, str] = _table()["environment_reasons"]
    return tuple(
        Finding(
            file="",
            field=show(name, 60),
            found=show(environment[name], 40),
            expected="only variables of the allow-list",
            summary=f"the variable is refused: it {reasons.get(name, 'is not known to leave the results alone')}",
            rule="execution",
        )
        for name in sorted(environment)
        if not _allowed(name)
    )


def check_arguments(arguments: Iterable[str]) -> tuple[Finding, ...]:
    """A finding for each flag that changes what is executed or measured, in either spelling of it."""
    found = []
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if not flag.startswith("-"):
            continue
        name = _SHORT.get(flag, flag.lower()).replace("_", "-")
        reason = next((why for prefix, why in _table()["flags"].items() if name.startswith(prefix)), None)
        if reason is not None:
            found.append(
                Finding(
                    file="",
                    field=show(flag, 60),
                    found=show(value or flag, 40),
                    expected="the rules' flags only",
                    summary=f"the flag is refused: it {reason}",
                    rule="execution",
                )
            )
    return tuple(found)


_SHORT = {"-q": "--quantization", "-O": "--compilation-config", "-cc": "--compilation-config"}
"""vLLM's short spellings."""


def _allowed(name: str) -> bool:
    allowed: list[str] = _table()["environment"]
    return any(name == entry or (entry.endswith("*") and name.startswith(entry[:-1])) for entry in allowed)
