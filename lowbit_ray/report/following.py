"""Somebody else's evaluation on a terminal, as it is told through the ledger or by the service."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from lowbit_ray.progress import Moment, Progress
from lowbit_ray.report.steps import step_title

__all__ = ["show_moments"]


def show_moments(moments: Iterable[Moment], console: Console) -> Moment | None:
    """One line for each step that is done, below them what is going on; the last moment.

    Where the output is no terminal, each change of what is done is one plain line.
    """
    shown: set[str] = set()
    last: Moment | None = None
    said = ""
    with Live(
        console=console, refresh_per_second=4, transient=True, auto_refresh=console.is_terminal
    ) as live:
        for moment in moments:
            for step in moment.steps:
                if step not in shown:
                    shown.add(step)
                    console.print(Text.assemble(("✓ ", "green"), step_title(step)))
            line = _line(moment)
            if console.is_terminal:
                live.update(_view(line), refresh=True)
            elif line != said:
                console.print(f"  {line}", highlight=False, markup=False)
            last, said = moment, line
    if last is not None and last.over:
        console.print(_verdict(last))
    return last


def _line(moment: Moment) -> str:
    state = moment.state
    if moment.queue_position is not None:
        return f"{state.status}: number {moment.queue_position} in the queue"
    if moment.progress is None:
        return state.status if state.stage is None else f"{state.status}: {state.stage}"
    return _doing(moment.progress)


def _doing(progress: Progress) -> str:
    title = step_title(progress.step) if progress.step else ""
    amount = f" {progress.done} of {progress.total}" if progress.total else ""
    return ": ".join(filter(None, (title, f"{progress.what}{amount}"))) or "running"


def _view(line: str) -> Table:
    view = Table.grid(padding=(0, 1))
    view.add_row(Spinner("dots"), Text(line))
    return view


def _verdict(moment: Moment) -> Text:
    gate_failed = moment.state.status == "done" and moment.qualified is False
    colour = "yellow" if gate_failed else "green" if moment.state.status == "done" else "red"
    text = Text.assemble((moment.state.status, colour))
    if gate_failed:
        text.append(", a gate failed", colour)
    if moment.score is not None:
        error = f" ± {moment.score_se:.3f}" if moment.score_se is not None else ""
        text.append(f"  score {moment.score:.3f}{error}")
    return text
