"""What the doctor says of one thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from lowbit_ray.errors import LowbitError
from lowbit_ray.rules import _Frozen

__all__ = ["Finding", "Level", "examined", "healthy"]

Level = Literal["good", "warning", "bad"]


class Finding(_Frozen):
    """One thing, and how it is."""

    what: str
    """`ledger`, `GPU 0`, `sandbox`."""
    level: Level
    """`warning`: some tasks cannot be evaluated, or not as well. `bad`: none can."""
    found: str
    remedy: str = ""
    """What to do; empty where it is good."""
    where: str = ""
    """The node; empty for this machine."""


def examined(what: str, check: Callable[[], Finding | list[Finding]]) -> list[Finding]:
    """The findings of a check; one that raises is a bad finding, so that the others are still made."""
    try:
        found = check()
    except LowbitError as error:
        return [Finding(what=what, level="bad", found=error.summary, remedy=error.remedy or str(error))]
    except Exception as error:  # a check that breaks is a finding like any other
        return [Finding(what=what, level="bad", found=f"{type(error).__name__}: {str(error)[:300]}")]
    return found if isinstance(found, list) else [found]


def healthy(findings: list[Finding]) -> bool:
    """Whether nothing is bad."""
    return all(finding.level != "bad" for finding in findings)
