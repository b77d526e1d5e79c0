"""A board, a submission, a list of them on a terminal: what the service answers, in few words."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from lowbit_ray.board import Row, summarize
from lowbit_ray.migration import migrate

__all__ = ["board_table", "submission_table", "submissions_table"]


ID = 16
"""Digits of a submission's id: cut off it is of no use."""
FIGURES = (
    ("efficiency_gain", "efficiency gain E", 1, "{:.4f}"),
    ("speed", "speed", 1, "{:.3f}× BF16's"),
    ("memory", "memory", 1, "BF16's peak is {:.3f}× this one's"),
    ("drift", "drift D", 1, "{:.3f} points"),
    ("kl", "KL from BF16", 1, "{:.4f} nats per token"),
    ("mean_drop", "accuracy drop", 100, "{:.2f} points"),
)
"""Name in a record, name on the terminal, factor and unit."""


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


def submissions_table(page: dict[str, Any]) -> Table:
    """One line a submission."""
    table = Table(box=None, pad_edge=False)
    table.add_column("submission", no_wrap=True, min_width=ID)
    table.add_column("score", justify="right", no_wrap=True)
    for name in ("status", "by", "task", "split", "at, UTC", "method"):
        table.add_column(name, overflow="fold")
    for item in page["items"]:
        error = "" if item["score_se"] is None else f" ± {item['score_se']:.3f}"
        table.add_row(
            item["id"],
            "" if item["score"] is None else f"{item['score']:.3f}{error}",
            _status(item),
            Text(item["participant"]),
            item["task_id"],
            item["split"],
            item["created_at"][:16].replace("T", " "),
            Text(item["method"]),
        )
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
    stopped = view.get("cancelled")
    if stopped:
        lines.append(("stopped by", f"{stopped['by']}: {stopped['reason']}".removesuffix(": ")))
    if view.get("flag"):
        lines.append(("flagged", view["flag"]["reason"]))
    if view.get("error"):
        lines.append(("reason", view["error"]))
    if view["status"] in {"done", "rejected", "failed"}:
        lines += _figures(view)
    return lines


def _figures(view: dict[str, Any]) -> list[tuple[str, str]]:
    """Verdict, score and what it is made of, with units; of what was not measured only the cost."""
    figures = summarize(migrate(view))
    lines: list[tuple[str, str]] = []
    if figures.score is not None:
        error = "" if figures.score_se is None else f" ± {figures.score_se:.4f}"
        reason = (view["result"] or {}).get("reason") or view.get("error") or ""
        lines += [
            ("verdict", "qualified" if figures.qualified else f"not qualified: {reason}"),
            ("score", f"{figures.score:.4f}{error}"),
        ]
    for name, title, factor, words in FIGURES:
        value = getattr(figures, name)
        if value is not None:
            lines.append((title, words.format(factor * value)))
    if figures.precision is not None:
        lines.append(("precision", figures.precision))
    return [*lines, ("GPU-hours", f"{figures.charged_hours:.2f}")]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
