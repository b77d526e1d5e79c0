"""A record on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lowbit_ray.records import Record
from lowbit_ray.report.advice import advice_on
from lowbit_ray.report.lines import Line, headline, lines_of, workload_rows
from lowbit_ray.report.plain import plain

__all__ = ["render_record"]


def render_record(record: Record, console: Console) -> None:
    """Prints the verdict, the rows of the result and the figures of each workload."""
    parts: list[RenderableType] = [_verdict(record)]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for line in (*lines_of(record), *_advice(record)):
        text = Text(plain(line.text))
        if line.note:
            text.append(f"\n{plain(line.note)}", "dim")
        table.add_row(line.title, text)
    parts.append(table)
    if record.result is not None:
        parts.append(_workloads(record))
    console.print(
        Panel(Group(*parts), title=f"Submission · {record.task_id} · {record.id}", border_style="cyan")
    )


def _verdict(record: Record) -> Text:
    result = record.result
    text = Text()
    if result is not None:
        error = f" ± {result.score_se:.3f}" if result.score_se is not None else ""
        text.append(
            f"{result.score:.3f}{error} LowBScore\n", "bold green" if result.qualified else "bold yellow"
        )
    text.append(plain(headline(record)), "" if result is not None else "bold red")
    text.append(
        f"\n{record.solution.method} by {record.participant} · {record.split} split · {record.track} track\n",
        "dim",
    )
    return text


def _advice(record: Record) -> Iterator[Line]:
    for advice in advice_on(record):
        yield Line("What it means", advice.meaning)
        yield Line("What to change", advice.change)


def _workloads(record: Record) -> Table:
    assert record.result is not None
    table = Table(
        title="By workload (tokens a second; candidate against BF16)", title_justify="left", pad_edge=False
    )
    for column in ("workload", "candidate", "BF16", "speed", "peak, candidate / BF16", "memory"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for row in workload_rows(record.result):
        table.add_row(*row)
    return table
