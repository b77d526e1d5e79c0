"""Text of a stranger's on a terminal: what would move the cursor, colour or ring is left out."""

from __future__ import annotations

import re

__all__ = ["plain"]

SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)", re.DOTALL)
"""ECMA-48: a control sequence, a command to the terminal up to its end, any other escape."""


def plain(text: str) -> str:
    """The printable characters, spaces, tabs and line breaks of a text."""
    bare = SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return "".join(one for one in bare if one.isprintable() or one in "\n\t")
