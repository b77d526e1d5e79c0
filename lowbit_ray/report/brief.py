"""A board, a submission, a person's quotas on a terminal: what the service answers, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from lowbit_ray.board import Row, summarize
from lowbit_ray.migration import migrate

__all__ = [
    "actions_table",
    "board_table",
    "own_quotas",
    "person_table",
    "quotas_table",
    "submission_table",
    "submissions_table",
]


def board_table(board: dict[str, Any]) -> Table:
    """One line a row of the board."""
    table = Table(box=None, pad_edge=False)
    for name in ("", "participant", "submission", "method"):
        table.add_column(name, overflow="fold")
    for name in ("score", "±", "after cost", "KL", "speed", "memory", "GPU-h"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("precision", no_wrap=True)
    for values in board["rows"]:
        row = Row.model_validate(values)
        place = "ref" if row.reference else "flag" if row.flagged else f"{row.rank}{'=' if row.tied else ''}"
        table.add_row(
            place,
            Text(row.participant),
            row.submission,
            Text(row.method),
            _number(row.score, 3),
            _number(row.score_se, 3),
            _number(row.board_score, 3),
            _number(row.kl, 4),
            _number(row.speed, 2),
            _number(row.memory, 2),
            _number(row.gpu_hours, 2),
            Text(row.precision or ""),
        )
    return table


def submission_table(view: dict[str, Any]) -> Table:
    """Where a submission stands; its figures, once there is a verdict."""
    table = Table.grid(padding=(0, 2))
    for name, value in _lines(view):
        table.add_row(name, Text(value))
    return table


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


def submissions_table(page: dict[str, Any]) -> Table:
    """One line a submission."""
    table = Table(box=None, pad_edge=False)
    for name in ("submission", "participant", "task", "split", "status"):
        table.add_column(name, no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("handed in (UTC)", no_wrap=True)
    table.add_column("method", overflow="fold")
    for item in page["items"]:
        error = "" if item["score_se"] is None else f" ± {item['score_se']:.3f}"
        table.add_row(
            item["id"],
            Text(item["participant"]),
            item["task_id"],
            item["split"],
            _status(item),
            "" if item["score"] is None else f"{item['score']:.3f}{error}",
            item["created_at"][:16].replace("T", " "),
            Text(item["method"]),
        )
    return table


def actions_table(actions: Sequence[dict[str, Any]]) -> Table:
    """One line an action of the audit log."""
    table = Table(box=None, pad_edge=False)
    for name in ("at (UTC)", "by", "what", "subject", "reason"):
        table.add_column(name, overflow="fold", no_wrap=name.startswith("at"))
    for action in actions:
        at = action["at"][:19].replace("T", " ")
        table.add_row(at, *(Text(action[name]) for name in ("by", "what", "subject", "reason")))
    return table


def _status(item: dict[str, Any]) -> str:
    if item["flagged"] is not None:
        return f"{item['status']}, flagged"
    if item["queue_position"] is not None:
        return f"{item['status']}, number {item['queue_position']}"
    if item["status"] == "done" and not item["qualified"]:
        return "done, gate failed"
    return item["status"] if item["stage"] is None else f"{item['status']}: {item['stage']}"


def _lines(view: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("id", view["id"]),
        ("task", f"{view['task_id']}, {view['split']}, {view['track']} track"),
        ("participant", view["participant"]),
        ("checkpoint", view["solution"]["checkpoint"]),
        ("method", view["solution"]["method"]),
        ("status", view["status"]),
    ]
    if view.get("queue_position"):
        lines.append(("place in the queue", str(view["queue_position"])))
    if view.get("flag"):
        lines.append(("flagged", view["flag"]["reason"]))
    if view.get("error"):
        lines.append(("reason", view["error"]))
    if view["status"] in {"done", "rejected", "failed"}:
        figures = summarize(migrate(view))
        for name in ("score", "efficiency_gain", "speed", "memory", "drift", "kl", "mean_drop"):
            value = getattr(figures, name)
            if value is not None:
                error = figures.score_se if name == "score" else None
                lines.append((name.replace("_", " "), f"{value:.4f}" + (f" ± {error:.4f}" if error else "")))
        lines.append(("GPU-hours", f"{figures.charged_hours:.2f}"))
    return lines


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _used(quota: dict[str, int] | None) -> str:
    return "without limit" if quota is None else f"{quota['used']} of {quota['limit']}"
