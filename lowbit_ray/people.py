"""Participants and organizers, the tokens they show and quotas of their own: one object a person under `people/`.

A token is 32 random bytes, shown once and stored as its SHA-256: whoever reads the ledger learns no token. A fast
hash is enough, as there is nothing to guess in 256 random bits.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from lowbit_ray.errors import ConfigError
from lowbit_ray.ledger import Entry, Ledger
from lowbit_ray.rules import _Frozen
from lowbit_ray.submission import now

__all__ = [
    "OwnQuota",
    "Person",
    "Token",
    "check_issue",
    "find_participant",
    "find_person",
    "fingerprint",
    "issue_token",
    "list_people",
    "live_tokens",
    "revoke_tokens",
    "rotate_token",
    "set_quotas",
]

PREFIX = "lowbit_"
"""Of every token, so that scanners for leaked secrets can know them."""
TRIES = 20

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
OwnQuota = Literal["scored_per_task", "dev_per_day"]


class Token(_Frozen):
    """One token, as it is stored."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
    """Names the token where people speak of it; no part of the secret."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created_at: datetime
    revoked_at: datetime | None = None


class Person(_Frozen):
    """Somebody who may use the service."""

    name: Name
    role: Literal["participant", "organizer"] = "participant"
    tokens: tuple[Token, ...] = ()
    scored_per_task: Annotated[int, Field(ge=0)] | None = None
    """Scored submissions a task; None takes the rules' number."""
    dev_per_day: Annotated[int, Field(ge=0)] | None = None
    """Dev submissions a task and day; None takes the task's number."""

    @property
    def organizer(self) -> bool:
        return self.role == "organizer"

    def live_tokens(self) -> list[Token]:
        """Tokens that are not revoked."""
        return [token for token in self.tokens if token.revoked_at is None]


def fingerprint(token: str) -> str:
    """The SHA-256 of a token, by which it is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def list_people(ledger: Ledger) -> list[Person]:
    """Everybody, by name; whoever's object cannot be read is left out, and `lowbit ledger fsck` says so."""
    found = []
    for key in ledger.keys("people/"):
        entry = ledger.read(key)
        with contextlib.suppress(ValueError):  # one broken object must not lock everybody out
            found += [] if entry is None else [Person.model_validate_json(entry.data)]
    return found


def find_person(ledger: Ledger, name: str) -> Person:
    """One person; ConfigError where there is none of this name."""
    return _read(ledger, name)[0]


def check_issue(ledger: Ledger, name: str, role: Literal["participant", "organizer"] | None) -> None:
    """ConfigError where a token could not be issued: it is no name, or that of a person of another role."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            "not a person's name",
            where="people",
            found=name[:80],
            expected="a-z, 0-9, dots, dashes, underscores",
        )
    known = _find(ledger, name)
    if known is not None and role is not None and known[0].role != role:
        raise ConfigError("the person has another role", where=name, found=known[0].role, expected=role)


def issue_token(ledger: Ledger, name: str, role: Literal["participant", "organizer"] | None = None) -> str:
    """A new token for a person, who is made where there is none; the only time that the token is seen.

    role: of a new person (participant by default); of a known one it must agree where it is given.
    """
    check_issue(ledger, name, role)
    text, token = _new()
    fresh = Person(name=name, role=role or "participant", tokens=(token,))
    if not ledger.create(_key(name), fresh.model_dump_json().encode()):
        check_issue(ledger, name, role)  # somebody else may have made the person just now
        _change(ledger, name, _tokens(lambda person: (*person.tokens, token)))
    return text


def rotate_token(ledger: Ledger, name: str) -> str:
    """A new token in the place of all that the person has."""
    text, token = _new()
    _change(ledger, name, _tokens(lambda person: (*_revoked(person, None), token)))
    return text


def live_tokens(ledger: Ledger, name: str, token_id: str | None = None) -> list[Token]:
    """A person's tokens that are not revoked; ConfigError where `token_id` is given and none of them."""
    live = find_person(ledger, name).live_tokens()
    if token_id is not None and token_id not in {token.id for token in live}:
        known = ", ".join(token.id for token in live) or "none"
        raise ConfigError("no such token", where=name, found=token_id, expected=known)
    return live


def revoke_tokens(ledger: Ledger, name: str, token_id: str | None = None) -> int:
    """Revokes one token by its id, or all; how many were revoked."""
    before = live_tokens(ledger, name, token_id)
    after = _change(ledger, name, _tokens(lambda person: _revoked(person, token_id)))
    return len(before) - len(after.live_tokens())


def find_participant(ledger: Ledger, name: str) -> Person:
    """One participant; ConfigError where there is none of this name, or an organizer, who has no quotas."""
    person = find_person(ledger, name)
    if person.organizer:
        raise ConfigError("an organizer, who has no quotas", where=name, expected="a participant")
    return person


def set_quotas(ledger: Ledger, name: str, changes: Mapping[OwnQuota, int | None]) -> Person:
    """Gives a participant quotas of their own, None the general ones; the person as changed. Errors as above."""
    find_participant(ledger, name)
    return _change(ledger, name, lambda person: Person.model_validate(person.model_dump() | dict(changes)))


def _new() -> tuple[str, Token]:
    text = PREFIX + secrets.token_urlsafe(32)
    return text, Token(id=secrets.token_hex(4), sha256=fingerprint(text), created_at=now())


def _revoked(person: Person, token_id: str | None) -> tuple[Token, ...]:
    return tuple(
        token.model_copy(update={"revoked_at": now()})
        if token.revoked_at is None and token_id in (None, token.id)
        else token
        for token in person.tokens
    )


def _tokens(of: Callable[[Person], tuple[Token, ...]]) -> Callable[[Person], Person]:
    return lambda person: person.model_copy(update={"tokens": of(person)})


def _change(ledger: Ledger, name: str, change: Callable[[Person], Person]) -> Person:
    for _ in range(TRIES):
        person, entry = _read(ledger, name)
        changed = change(person)
        if ledger.swap(_key(name), changed.model_dump_json().encode(), entry.version):
            return changed
    raise ConfigError("others are changing this person all the time", where=name)


def _read(ledger: Ledger, name: str) -> tuple[Person, Entry]:
    found = _find(ledger, name)
    if found is None:
        raise ConfigError(
            "no such person", where="people", found=name, remedy="`lowbit token list` names all."
        )
    return found


def _find(ledger: Ledger, name: str) -> tuple[Person, Entry] | None:
    entry = ledger.read(_key(name)) if NAME.fullmatch(name) else None
    return None if entry is None else (Person.model_validate_json(entry.data), entry)


def _key(name: str) -> str:
    return f"people/{name}.json"
