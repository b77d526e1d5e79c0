"""JSON of a server that nobody vouches for: whatever is wrong with it is a ValueError, and what comes out can be kept.

Python's own reader lets an answer raise RecursionError (a hundred thousand brackets), and takes halves of characters
(`\\ud800`) that no file and no record can hold afterwards; those become the replacement character.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse_foreign"]

MARK = "\\ud"
"""Halves of characters can only be written so, once the bytes themselves are UTF-8."""


def parse_foreign(data: bytes) -> Any:
    """The value; ValueError for bytes that are no JSON in UTF-8, nested too deep, or with numbers too long."""
    try:
        text = data.decode()
        value = json.loads(text)
        return _whole(value) if MARK in text.lower() else value
    except RecursionError:
        raise ValueError("nested too deep") from None


def _whole(value: Any) -> Any:
    """The value without halves of characters."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value
