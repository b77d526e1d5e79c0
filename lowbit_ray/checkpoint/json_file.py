"""JSON that strangers wrote, read so that it can neither mislead nor exhaust the reader.

Duplicate keys, NaN, other encodings than UTF-8, endless nesting and keys that a terminal would act upon are
refused: a reader that takes the last of two equal keys and an engine that takes the first would see two
different checkpoints. Infinity is allowed in configuration files, as some real ones hold it.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from lowbit_ray.errors import CheckpointError

__all__ = ["parse_object", "read_bytes", "read_object"]

MAX_CONFIG_BYTES = 16 * 2**20


def read_bytes(path: Path, limit: int) -> bytes:
    """The whole of a regular file of at most `limit` bytes.

    Raises CheckpointError when there is no such file, when it is a pipe or a device (reading one may never
    end), when it is larger, or when it cannot be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError("not a regular file", where=path.name, expected="a regular file")
        if status.st_size > limit:
            raise CheckpointError(
                "the file is too large",
                where=path.name,
                found=f"{status.st_size} bytes",
                expected=f"at most {limit}",
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError("the file is missing", where=path.name) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the file cannot be read: {error}", where=path.name) from None


def read_object(path: Path, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """A file that holds one JSON object; CheckpointError names the file and what is wrong."""
    return parse_object(read_bytes(path, limit), path.name, infinity=True)


def parse_object(data: bytes, where: str, *, infinity: bool = False) -> dict[str, Any]:
    """One JSON object from UTF-8 bytes; CheckpointError as the module says."""

    def constant(name: str) -> float:
        if name == "NaN" or not infinity:
            raise CheckpointError(
                "a number is not finite", where=where, found=name, expected="a finite number"
            )
        return float(name)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise CheckpointError("a key stands twice", where=where, found=_short(twice))
        for key in members:
            if not key.isprintable():
                raise CheckpointError("a key holds control characters", where=where, found=_short(key))
        return members

    try:
        value = json.loads(data.decode(), parse_constant=constant, object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"the text is not UTF-8: {error.reason}", where=where) from None
    except RecursionError:
        raise CheckpointError("the JSON is nested too deeply", where=where) from None
    except ValueError as error:
        raise CheckpointError(f"the text is not JSON: {str(error)[:200]}", where=where) from None
    if not isinstance(value, dict):
        raise CheckpointError(
            "the JSON is not an object", where=where, found=type(value).__name__, expected="{...}"
        )
    return value


def _short(text: str) -> str:
    return ascii(text[:100])
