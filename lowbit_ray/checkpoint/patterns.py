"""Matching module names against patterns that strangers wrote, in bounded time.

Configs hold regular expressions, and one like `(a+)+$` takes longer than the universe on a long name.
Python's engine cannot be interrupted, so that whatever may be slow runs in a child process that can.
"""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable

from lowbit_ray.errors import CheckpointError

__all__ = ["Matcher"]

BUDGET_S = 10.0
"""For all patterns of one checkpoint together."""
MAX_PATTERNS = 1024
MAX_LENGTH = 4096
_CHILD = """
import json, re, sys
pattern, names = json.load(sys.stdin)
matcher = re.compile(pattern)
json.dump([name for name in names if matcher.match(name)], sys.stdout)
"""


class Matcher:
    """Matches regular expressions (from the start, as `re.match`) against a fixed set of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._hits: dict[str, frozenset[str]] = {}
        self._left_s = BUDGET_S

    def regex(self, pattern: str, name: str, where: str) -> bool:
        """Whether the regular expression matches; CheckpointError if it is none, or takes too long."""
        return name in self._all(pattern, pattern, where)

    def wildcard(self, pattern: str, name: str, where: str) -> bool:
        """Whether the shell wildcard matches the whole name."""
        return name in self._all(pattern, fnmatch.translate(pattern), where, safe=True)

    def _all(self, key: str, pattern: str, where: str, *, safe: bool = False) -> frozenset[str]:
        hits = self._hits.get(key)
        if hits is None:
            if len(self._hits) >= MAX_PATTERNS or len(pattern) > MAX_LENGTH:
                raise CheckpointError(
                    "too many or too long patterns",
                    where=where,
                    found=f"{len(self._hits) + 1} patterns, this one of {len(pattern)} characters",
                    expected=f"at most {MAX_PATTERNS} of {MAX_LENGTH}",
                )
            try:
                compiled = re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise CheckpointError(
                    f"not a regular expression: {error}", where=where, found=ascii(key)
                ) from None
            if safe or _quick(pattern):
                hits = frozenset(name for name in self._names if compiled.match(name))
            else:
                hits = self._in_child(pattern, where)
            self._hits[key] = hits
        return hits

    def _in_child(self, pattern: str, where: str) -> frozenset[str]:
        started = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _CHILD],
                input=json.dumps([pattern, sorted(self._names)]),
                capture_output=True,
                text=True,
                timeout=max(self._left_s, 0.01),
                check=True,
            )
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
            raise CheckpointError(
                "the pattern takes too long to match",
                where=where,
                found=ascii(pattern)[:200],
                remedy="Write it without nested repetitions.",
            ) from None
        self._left_s -= time.monotonic() - started
        return frozenset(json.loads(done.stdout))


def _quick(pattern: str) -> bool:
    """Whether backtracking is at most quadratic: no bounded or nested repetition and at most two stars."""
    plain = re.sub(r"\(\?(?:[:=!]|<[=!])", "(", pattern)
    return not re.search(r"[+?{]|\)\*", plain) and plain.count("*") <= 2
