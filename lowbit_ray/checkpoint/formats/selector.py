"""Which modules a config's list names: each format matches in its own way, and all of them are here.

A module has several spellings (`names.aliases`); a list that names one of them means the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lowbit_ray.checkpoint.names import Weight, canonical
from lowbit_ray.checkpoint.patterns import Matcher

__all__ = ["How", "Selector"]

How = Literal["exact", "substring", "suffix", "wildcard", "regex"]
WILD = frozenset("*?[")


@dataclass(frozen=True)
class Selector:
    """A list of names or patterns, and how it matches.

    exact: the module, or all modules below it. substring: a part of the name. suffix: whole last parts.
    wildcard: shell patterns. regex: `re:` patterns beside exact names.
    """

    patterns: tuple[str, ...]
    how: How
    matcher: Matcher
    where: str

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def find(self, weight: Weight) -> str | None:
        """The first entry that names the weight's module."""
        return next((pattern for pattern in self.patterns if self._hit(pattern, weight)), None)

    def __contains__(self, weight: Weight) -> bool:
        if self.how == "exact" or self.how == "regex":
            # most lists are long and literal: one look-up instead of a walk
            if not self._literal.isdisjoint(
                _and_parents(weight.module) if self.how == "exact" else (weight.module,)
            ):
                return True
            return any(self._hit(pattern, weight) for pattern in self._special)
        return self.find(weight) is not None

    @property
    def _literal(self) -> frozenset[str]:
        cached: frozenset[str] | None = self.__dict__.get("literal")
        if cached is None:
            cached = frozenset(
                canonical(f"{name}.")[:-1] for name in self.patterns if not name.startswith("re:")
            )
            self.__dict__["literal"] = cached
        return cached

    @property
    def _special(self) -> tuple[str, ...]:
        if self.how == "exact":
            return tuple(name for name in self.patterns if "." not in name)
        return tuple(name for name in self.patterns if name.startswith("re:"))

    def _hit(self, pattern: str, weight: Weight) -> bool:
        names = weight.names
        if self.how == "substring":
            return any(pattern in name for name in names)
        if self.how == "suffix":
            return any(f".{name}".endswith(f".{pattern}") for name in names)
        if self.how == "wildcard" and not WILD.isdisjoint(pattern):
            return any(self.matcher.wildcard(pattern, name, self.where) for name in names)
        if pattern.startswith("re:"):
            return any(self.matcher.regex(pattern[3:], name, self.where) for name in names)
        if self.how == "exact" and weight.module.rpartition(".")[2] == pattern:
            return True
        return any(
            name == pattern or (self.how != "regex" and name.startswith(f"{pattern}.")) for name in names
        )


def _and_parents(module: str) -> list[str]:
    """`a.b.c`, `a.b` and `a`."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
