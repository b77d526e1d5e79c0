"""The doctor's findings on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from lowbit_ray.doctor.finding import Finding, Level

__all__ = ["render_findings"]

MARKS: dict[Level, tuple[str, str]] = {
    "good": ("✓", "green"),
    "warning": ("!", "yellow"),
    "bad": ("✗", "red"),
}


def render_findings(findings: Iterable[Finding], console: Console) -> list[Finding]:
    """Prints each as soon as it comes, by node; returns them."""
    shown: list[Finding] = []
    where = ""
    for finding in findings:
        if finding.where != where:
            where = finding.where
            console.print(Text(where, "bold"))
        mark, colour = MARKS[finding.level]
        console.print(Text.assemble((f"{mark} ", colour), (f"{finding.what:<20}", "bold"), finding.found))
        if finding.remedy:
            console.print(Text(f"  → {finding.remedy}", "dim"))
        shown.append(finding)
    return shown
