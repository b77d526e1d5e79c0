"""Whose token is this? The people of the ledger, kept in memory for a few seconds."""

from __future__ import annotations

import threading
import time

from lowbit_ray.ledger import Ledger
from lowbit_ray.people import Person, fingerprint, list_people

__all__ = ["Roster"]

FRESH_S = 5.0
"""A revoked token works no longer than this."""
UNKNOWN_S = 1.0
"""An unknown token makes the people be read again, at most so often: one issued a moment ago works at once."""


class Roster:
    """People by their tokens' fingerprints."""

    def __init__(self, ledger: Ledger, *, fresh_s: float = FRESH_S) -> None:
        self.fresh_s = fresh_s
        self._ledger = ledger
        self._lock = threading.Lock()
        self._known: dict[str, Person] = {}
        self._read_at = float("-inf")

    def fresh(self, token: str) -> Person | None:
        """The person of a token as far as memory knows it well enough; reads nothing."""
        if time.monotonic() - self._read_at > self.fresh_s:
            return None
        return self._known.get(fingerprint(token))

    def find(self, token: str) -> Person | None:
        """The person of a token that is not revoked, None for any other; LedgerError where the store fails."""
        digest = fingerprint(token)
        with self._lock:
            age = time.monotonic() - self._read_at
            if age > self.fresh_s or (digest not in self._known and age > min(UNKNOWN_S, self.fresh_s)):
                self._known = {
                    token.sha256: person
                    for person in list_people(self._ledger)
                    for token in person.live_tokens()
                }
                self._read_at = time.monotonic()
            return self._known.get(digest)
