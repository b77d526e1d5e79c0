"""The outcome of `lowbit score` on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from lowbit_ray.recheck import Check

__all__ = ["render_checks"]

STYLES = {"agrees": "green", "differs": "bold red", "unknown": "yellow"}


def render_checks(checks: Sequence[Check]) -> Table:
    """One row a derived number."""
    table = Table(
        title=f"{sum(check.status == 'agrees' for check in checks)} of {len(checks)} derived numbers agree"
    )
    for column in ("field", "recorded", "recomputed", "tolerance", "status"):
        table.add_column(column, justify="left" if column in {"field", "status"} else "right")
    for check in checks:
        style = STYLES[check.status]
        table.add_row(
            check.field,
            _number(check.recorded),
            _number(check.recomputed),
            f"{check.tolerance:.1e}",
            f"[{style}]{check.status}[/]",
        )
    return table


def _number(value: float | bool | None) -> str:
    if value is None:
        return "—"
    return str(value) if isinstance(value, bool) else f"{value:.6g}"
