"""A ledger that is asked again while its store is away: what a driver has measured is not to be lost with a minute.

Only drivers use it. A lease is renewed on the bare ledger, as its holder must learn in time that it has lost it; the
service and the dispatcher answer, and look again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import stamina

from lowbit_ray.errors import LedgerError
from lowbit_ray.ledger import Entry, Ledger

__all__ = ["PatientLedger"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PatientLedger:
    """The same five verbs; LedgerError only after `patience_s`."""

    ledger: Ledger
    patience_s: float = 600.0
    first_wait_s: float = 0.5
    most_wait_s: float = 15.0

    def create(self, key: str, data: bytes) -> bool:
        """As the ledger's."""
        return self._again(lambda: self.ledger.create(key, data))

    def read(self, key: str) -> Entry | None:
        """As the ledger's."""
        return self._again(lambda: self.ledger.read(key))

    def swap(self, key: str, data: bytes, version: str) -> bool:
        """As the ledger's."""
        return self._again(lambda: self.ledger.swap(key, data, version))

    def keys(self, prefix: str, *, after: str = "") -> list[str]:
        """As the ledger's."""
        return self._again(lambda: self.ledger.keys(prefix, after=after))

    def remove(self, key: str, version: str) -> bool:
        """As the ledger's."""
        return self._again(lambda: self.ledger.remove(key, version))

    def _again(self, verb: Callable[[], T]) -> T:
        attempts = stamina.retry_context(
            on=LedgerError,
            attempts=None,
            timeout=self.patience_s,
            wait_initial=self.first_wait_s,
            wait_max=self.most_wait_s,
        )
        for attempt in attempts:
            with attempt:
                return verb()
        raise AssertionError("the last attempt raises")
