"""Progress of an evaluation on a terminal: one line a finished step, and below them what is going on.

Where the output is no terminal (a log, a pipe), each new thing is one plain line instead.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from lowbit_ray.report.steps import duration, step_title

__all__ = ["ConsoleWatch"]


class ConsoleWatch:
    """Tells a person how far an evaluation is; a context manager around it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._started = time.monotonic()
        self._step = ""
        self._line = ("", 0, 0)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def begin(self, step: str) -> None:
        """A step begins."""
        self._step = step_title(step)
        self.progress("", 0, 0)

    def progress(self, what: str, done: int, total: int) -> None:
        """Within the step: what is being done, and how much of it."""
        before, self._line = self._line, (what, done, total)
        if self._console.is_terminal:
            self._live.update(self._view())
        elif what and what != before[0]:
            amount = f" {done} of {total}" if total else ""
            self._console.print(f"  {self._elapsed()}  {what}{amount}", highlight=False)

    def end(self, step: str, seconds: float, *, reused: bool) -> None:
        """A step is done."""
        note = "kept from before" if reused else duration(seconds)
        line = Text.assemble(("✓ ", "green"), f"{step_title(step):<52}", (f"{note:>16}", "dim"))
        self._console.print(line)

    def _view(self) -> Table:
        what, done, total = self._line
        amount = f"{done} of {total}" if total else ""
        view = Table.grid(padding=(0, 1))
        view.add_row(
            Spinner("dots"), Text(self._step), Text(what, "cyan"), Text(amount), Text(self._elapsed(), "dim")
        )
        return view

    def _elapsed(self) -> str:
        return duration(time.monotonic() - self._started)
