"""Structured logs: one JSON object a line, for whatever collects the logs of Ray's jobs.

    {"at": "2026-11-30T10:00:00.123Z", "level": "info", "event": "step done", "submission": "…", "stage": "timed", …}

`submission` and `stage` stand in every line of an evaluation, so that a store of logs can be asked for one of them.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, TextIO

from rich.console import Console

from lowbit_ray.errors import LowbitError
from lowbit_ray.report.console import ConsoleWatch

__all__ = ["Form", "Log", "LogWatch", "told"]

Form = Literal["text", "json"]
Value = str | int | float | bool | None
PROGRESS_S = 10.0


class Log:
    """Writes lines to a stream, each whole; `context` stands in every one."""

    def __init__(self, stream: TextIO | None = None, **context: Value) -> None:
        self._stream = stream or sys.stderr
        self._context = context
        self._lock = threading.Lock()

    def say(self, level: Literal["info", "warning", "error"], event: str, **fields: Value) -> None:
        """One line; a field of the same name replaces the context's."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "level": level, "event": event, **self._context, **fields}
        with self._lock:
            self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._stream.flush()


class LogWatch:
    """A watch that logs; of progress within a step, each new thing and then a line every ten seconds."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._step = ""
        self._what = ""
        self._said = 0.0

    def begin(self, step: str) -> None:
        self._step, self._what = step, ""
        self._log.say("info", "step begins", stage=_stage(step), step=step)

    def progress(self, what: str, done: int, total: int) -> None:
        if what == self._what and time.monotonic() - self._said < PROGRESS_S:
            return
        self._what, self._said = what, time.monotonic()
        if what:
            self._log.say("info", what, stage=_stage(self._step), step=self._step, done=done, total=total)

    def end(self, step: str, seconds: float, *, reused: bool) -> None:
        event = "step kept from before" if reused else "step done"
        self._log.say("info", event, stage=_stage(step), step=step, seconds=round(seconds, 3))


@contextlib.contextmanager
def told(form: Form, submission: str) -> Iterator[ConsoleWatch | LogWatch]:
    """A watch that tells standard error how far an evaluation is, and, as JSON, what it ended by."""
    if form == "text":
        with ConsoleWatch(Console(stderr=True)) as watch:
            yield watch
        return
    log = Log(submission=submission)
    try:
        yield LogWatch(log)
    except LowbitError as error:
        log.say("error", error.summary, kind=type(error).__name__, message=str(error))
        raise
    log.say("info", "evaluation over")


def _stage(step: str) -> str:
    """The step's name without the pod's."""
    return step.partition("-")[0]
