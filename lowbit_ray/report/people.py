"""People, their quotas and what organizers did, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

__all__ = ["actions_table", "own_quotas", "person_table", "quotas_table"]


def person_table(me: dict[str, Any]) -> Table:
    """Who one is, and what is left of each quota."""
    table = Table.grid(padding=(0, 2))
    table.add_row(Text(me["name"]), me["role"])
    for quota in me["quotas"]:
        table.add_row(
            quota["task"], f"scored {_used(quota['scored'])}, dev today {_used(quota['dev_today'])}"
        )
    return table


def quotas_table(person: dict[str, Any]) -> Table:
    """The same, and which of the quotas are the person's own."""
    table = person_table(person)
    table.add_row("of their own", own_quotas(person) or "none")
    return table


def own_quotas(person: dict[str, Any]) -> str:
    """Quotas of one person's own in words; empty where there are none."""
    scored, dev = person["scored_per_task"], person["dev_per_day"]
    words = [] if scored is None else [f"{scored} scored a task"]
    return ", ".join(words + ([] if dev is None else [f"{dev} dev a task and day"]))


def actions_table(actions: Sequence[dict[str, Any]]) -> Table:
    """One line an action of the audit log."""
    table = Table(box=None, pad_edge=False)
    for name in ("at (UTC)", "by", "what", "subject", "reason"):
        whole = name in {"at (UTC)", "subject"}
        table.add_column(name, overflow="fold", no_wrap=whole)
    for action in actions:
        at = action["at"][:19].replace("T", " ")
        table.add_row(at, *(Text(action[name]) for name in ("by", "what", "subject", "reason")))
    return table


def _used(quota: dict[str, int] | None) -> str:
    return "without limit" if quota is None else f"{quota['used']} of {quota['limit']}"
