"""Whose turn it is when a pod is free.

Ray gives what is free to any of the groups that wait for it. So each group's name says how urgent its evaluation is
and since when it waits, and one that was given something looks whether another has to come first: then it gives it
back and asks again. All of them stay pending meanwhile, so that an autoscaler sees every one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Turn"]

PREFIX = "lowbit-pod"
SLACK_S = 10.0
"""Who has waited so little longer is not let first: a GPU would idle for seconds until Ray asks that one again."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of one evaluation among those that wait for the same kind of pod."""

    scored: bool
    """Scored submissions come before all others."""
    since: float = field(default_factory=time.time)
    """When it began to wait, by the wall clock, which hosts share."""

    @property
    def rank(self) -> str:
        """Sorts: what is less comes first."""
        return self._rank(self.since)

    def _rank(self, since: float) -> str:
        return f"{PREFIX}-{'0' if self.scored else '1'}-{since:017.6f}"

    def group_name(self) -> str:
        """A name for one group of it; Ray wants each name once."""
        return f"{self.rank}-{secrets.token_hex(4)}"

    def is_behind(self, groups: Iterable[Mapping[str, Any]], bundle: Mapping[str, float]) -> bool:
        """Whether one of the groups, as Ray's table has them, waits for the same bundle and has to get it first."""
        let_first = self._rank(self.since - SLACK_S)
        return any(
            group["state"] == "PENDING"
            and group["name"].startswith(PREFIX)
            and group["name"] < let_first
            and dict(group["bundles"][0]) == dict(bundle)
            for group in groups
        )
