"""A board, a submission, a list of them on a terminal: what the service answers, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from lowbit_ray.board import Row, summarize
from lowbit_ray.migration import migrate
from lowbit_ray.report.plain import plain
from lowbit_ray.report.refusal import refusal

__all__ = ["board_table", "refusal_table", "submission_table", "submissions_table"]


ID = 16
"""Digits of a submission's id: cut off it is of no use."""
FIGURES = (
    ("efficiency_gain", "", "efficiency gain E", 1, 4, ""),
    ("speed", "", "speed", 1, 3, "× BF16's"),
    ("memory", "", "memory", 1, 3, "× (BF16's peak over this one's)"),
    ("drift", "drift_se", "drift D", 1, 3, " points"),
    ("kl", "kl_se", "KL from BF16", 1, 4, " nats per token"),
    ("mean_drop", "mean_drop_se", "accuracy drop", 100, 2, " points"),
)
"""Name of a figure, of its standard error, name on the terminal, factor, digits and unit."""


def board_table(board: dict[str, Any]) -> Table:
    """One line a row of the board."""
    table = Table(box=None, pad_edge=False)
    for name in ("", "participant", "submission", "method"):
        table.add_column(name, overflow="fold")
    for name in ("score", "±", "after cost", "KL, nats", "speed", "memory", "GPU-h"):
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
    return _titled(_lines(view))


def refusal_table(view: dict[str, Any]) -> Table:
    """Why a finished one has no score or did not qualify, what that means and what to change; empty where it did."""
    return _titled(refusal(view))


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


def _titled(lines: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for title, text in lines:
        table.add_row(title, Text(plain(text)))
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
    ended = view.get("attempts", 0) - (view["status"] == "running")
    if ended > 0 and view["status"] in {"waiting", "running"}:
        lines.append(("attempts", f"{ended} ended by a fault of ours, free of charge; it is tried again"))
    if view["status"] in {"done", "rejected", "failed"}:
        lines += [*_verdict(view), *_figures(view)]
    return lines


def _verdict(view: dict[str, Any]) -> list[tuple[str, str]]:
    """Verdict and score; where something went wrong what, what it means and what to change."""
    summary = summarize(migrate(view))
    lines = []
    if summary.score is not None:
        error = "" if summary.score_se is None else f" ± {summary.score_se:.4f}"
        lines = [
            ("verdict", "qualified" if summary.qualified else "not qualified"),
            ("score", f"{summary.score:.4f}{error}"),
        ]
    return lines + refusal(view)


def _figures(view: dict[str, Any]) -> list[tuple[str, str]]:
    """What the score is made of, with units and standard errors, and where it was measured."""
    summary = summarize(migrate(view))
    lines = []
    for name, error, title, factor, digits, unit in FIGURES:
        value, se = getattr(summary, name), getattr(summary, error) if error else None
        if value is not None:
            scatter = "" if se is None else f" ± {factor * se:.{digits}f}"
            lines.append((title, f"{factor * value:.{digits}f}{scatter}{unit}"))
    if summary.kl_top_k is not None and summary.kl_tail_mass is not None:
        words = f"the top {summary.kl_top_k}, {summary.kl_tail_mass:.2%} of the probability beyond"
        lines.append(("KL is of", words))
    if summary.precision is not None:
        lines.append(("precision", summary.precision))
    if summary.device is not None:
        release = "" if summary.vllm is None else f", vLLM {summary.vllm}"
        lines.append(("measured on", f"{summary.device}{release}, rules {view['rules_version']}"))
    return [*lines, ("GPU-hours", f"{summary.charged_hours:.2f}")]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
