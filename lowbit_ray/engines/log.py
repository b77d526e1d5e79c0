"""An engine's log as lines of (process, level, message), whatever prefixes vLLM puts before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LogLine", "read_lines", "tail"]

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PREFIX = re.compile(
    r"^(?:\((?P<process>[^()]+?) pid=\d+\)[ ]?)*"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\][ ]?)?"
)
TAIL_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line."""

    process: str
    """`APIServer`, `EngineCore`, `Worker_TP0`; empty for other programs."""
    level: str
    """Empty where the line has none, as those of a traceback on standard error."""
    message: str


def read_lines(text: str) -> Iterator[LogLine]:
    """The lines of a log; control characters of terminals are dropped."""
    for raw in text.splitlines():
        line = COLOUR.sub("", raw)
        match = PREFIX.match(line)
        assert match is not None  # every part of the pattern is optional
        yield LogLine(match["process"] or "", match["level"] or "", line[match.end() :].rstrip())


def tail(path: Path, lines: int) -> str:
    """The last lines of a file of any size; empty if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
