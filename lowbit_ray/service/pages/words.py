"""How the pages print numbers: an em dash where there is none, thin precision elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["FILTERS", "NONE", "fixed", "percent", "score", "times"]

NONE = "—"


def fixed(value: float | None, digits: int = 2) -> str:
    """`1.23`."""
    return NONE if value is None else f"{value:.{digits}f}"


def times(value: float | None) -> str:
    """`1.23×`."""
    return NONE if value is None else f"{value:.2f}×"


def percent(value: float | None) -> str:
    """`1.2 %` of a share."""
    return NONE if value is None else f"{100 * value:.1f} %"


def score(value: float | None, error: float | None = None) -> str:
    """`1.615 ± 0.045`."""
    if value is None:
        return NONE
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


FILTERS: dict[str, Callable[..., Any]] = {"fixed": fixed, "times": times, "percent": percent, "score": score}
