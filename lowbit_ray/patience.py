"""A ledger that is asked again while its store is away: what a driver has measured is not to be lost with a minute.

Drivers use it. A lease is renewed on the bare ledger, as its holder must learn in time that it has lost it; the
service and the dispatcher answer, and look again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import stamina

from lowbit_ray.errors import LedgerError
from lowbit_ray.ledger import Entry, Ledger, open_ledger

__all__ = ["PatientLedger", "open_patiently"]

T = TypeVar("T")
PATIENCE_S = 600.0
FIRST_WAIT_S, MOST_WAIT_S = 0.5, 15.0


@dataclass(frozen=True, slots=True)
class PatientLedger:
    """The same five verbs; LedgerError only after `patience_s`."""

    ledger: Ledger
    patience_s: float = PATIENCE_S
    first_wait_s: float = FIRST_WAIT_S
    most_wait_s: float = MOST_WAIT_S

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
        return _again(verb, self.patience_s, self.first_wait_s, self.most_wait_s)


def open_patiently(address: str) -> Ledger:
    """The bare ledger at `address`, as `open_ledger`; waits for a store that is away."""
    return _again(lambda: open_ledger(address), PATIENCE_S, FIRST_WAIT_S, MOST_WAIT_S)


def _again(verb: Callable[[], T], patience_s: float, first_wait_s: float, most_wait_s: float) -> T:
    attempts = stamina.retry_context(
        on=LedgerError,
        attempts=None,
        timeout=patience_s,
        wait_initial=first_wait_s,
        wait_max=most_wait_s,
    )
    for attempt in attempts:
        with attempt:
            return verb()
    raise AssertionError("the last attempt raises")
