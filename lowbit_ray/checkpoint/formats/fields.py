"""Reading single fields of a quantization config, each refusal with file, field, found and expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.errors import CheckpointError

__all__ = ["Fields"]


class Fields:
    """A view of one JSON object that knows where it stands."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise CheckpointError("not an object", where=where, found=ascii(data)[:60], expected="{...}")
        self.data: Mapping[str, Any] = data
        self.where = where

    @classmethod
    def of(cls, source: QuantizationSource) -> Fields:
        return cls(source.data, source.where)

    def at(self, *keys: str) -> str:
        """The place of a field, for messages."""
        name = ".".join(keys)
        return f"{self.where}.{name}" if ": " in self.where else f"{self.where}: {name}"

    def whole(self, *keys: str, default: int | None = None, least: int = 1, most: int = 2**31) -> int:
        """A whole number under the first of `keys` that is present."""
        key = next((key for key in keys if self.data.get(key) is not None), None)
        value = default if key is None else self.data[key]
        if type(value) is not int or not least <= value <= most:
            raise CheckpointError(
                "the field is missing" if key is None else "the number is out of range",
                where=self.at(key or keys[0]),
                found=None if key is None else ascii(value)[:60],
                expected=f"a whole number from {least} to {most}",
            )
        return value

    def group(self, *keys: str, default: int | None = None) -> int:
        """A group size: positive, or −1 for one group a row."""
        size = self.whole(*keys, default=default, least=-1)
        if size == 0:
            raise CheckpointError(
                "a group of no weights", where=self.at(keys[0]), found=0, expected="-1, or 1 and more"
            )
        return size

    def choice(self, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of some words, compared in lower case."""
        value = self.data.get(key)
        value = default if value is None else value
        lowered = value.lower() if isinstance(value, str) else value
        if lowered not in allowed:
            raise CheckpointError(
                "not a known value",
                where=self.at(key),
                found=ascii(value)[:60],
                expected=f"one of {', '.join(allowed)}",
            )
        assert isinstance(lowered, str)
        return lowered

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.data.get(key)
        value = default if value is None else value
        if type(value) is not bool:
            raise CheckpointError("not true or false", where=self.at(key), found=ascii(value)[:60])
        return value

    def names(self, *keys: str) -> tuple[str, ...]:
        """A list of names under the first of `keys` that is present and not empty; none gives ()."""
        key = next((key for key in keys if self.data.get(key)), None)
        value = [] if key is None else self.data[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise CheckpointError(
                "not a list of names", where=self.at(key or keys[0]), found=ascii(value)[:60]
            )
        return tuple(value)

    def sub(self, key: str) -> Fields | None:
        """A nested object, None when it is absent or null."""
        value = self.data.get(key)
        return None if value is None else Fields(value, self.at(key))

    def pair(self, key: str) -> tuple[int, int] | None:
        """Two positive whole numbers, None when absent or null."""
        value = self.data.get(key)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or len(value) != 2
            or not all(type(n) is int and 0 < n < 2**31 for n in value)
        ):
            raise CheckpointError("not a pair of sizes", where=self.at(key), found=ascii(value)[:60])
        return value[0], value[1]

    def only(self, known: frozenset[str]) -> None:
        """Refuses a field that is not known, by name: nobody would read it, and an engine may."""
        unknown = sorted(self.data.keys() - known)
        if unknown:
            raise CheckpointError(
                "unknown field",
                where=self.at(unknown[0][:100]),
                found=ascii(self.data[unknown[0]])[:60],
                remedy="Remove it.",
            )
