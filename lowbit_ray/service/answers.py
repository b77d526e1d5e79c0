"""What the service's answers mean to its commands: problems become errors, streams become events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import httpx2

from lowbit_ray.errors import ConfigError, InfraError, SubmissionError

__all__ = ["events_of", "refuse", "sent"]

Json = dict[str, Any]

WITH_FOUND = frozenset({400, 404, 422})
"""Refusals for what a field says; others are for what has happened."""


def refuse(answer: httpx2.Response, url: str, asked: Json) -> NoReturn:
    """Raises what a problem says, with what was sent in the field that is wrong.

    ConfigError for a token that is refused, InfraError for a fault of the service, SubmissionError else.
    """
    problem = _problem(answer)
    title, detail, errors = problem["title"], problem["detail"], problem["errors"]
    if answer.status_code == 401:
        remedy = "Put the token that an organizer issued into the file of LOWBIT_TOKEN_FILE."
        raise ConfigError(title, where=url, remedy=remedy)
    if answer.status_code >= 500:
        raise InfraError(title, where=url, remedy=detail)
    if not errors:
        raise SubmissionError(title, where=url, remedy=detail)
    first, *others = errors
    field = first["field"].rpartition(".")[2]
    words = [_words(one) for one in others]
    if first["message"] not in detail:  # else it repeats them
        words.append(detail)
    raise SubmissionError(
        first["message"],
        where=field,
        found=asked.get(field) if answer.status_code in WITH_FOUND else None,
        expected=first.get("expected"),
        remedy=" ".join(filter(None, words)),
    )


def sent(path: str, options: Json) -> Json:
    """What was asked, by field."""
    _, _, what, *names = path.split("/")
    named = {"submissions": "id", "board": "task"}.get(what, "")
    found: Json = dict(zip((named, "", "name"), names, strict=False))
    for given in ("params", "json"):
        found |= options.get(given, {})
    return found


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Name and data of each server-sent event; comments keep the connection alive and are passed over."""
    name, data = "message", ""
    for line in lines:
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data += line[5:].strip()
        elif not line and data:
            yield name, data
            name, data = "message", ""


def _words(error: Json) -> str:
    expected = error.get("expected")
    return f"{error['field']}: {error['message']}{f', expected {expected}' if expected else ''}."


def _problem(answer: httpx2.Response) -> Json:
    try:
        told: Json = answer.json()
        errors = [
            {**one, "field": str(one["field"]), "message": str(one["message"])} for one in told["errors"]
        ]
        return {"title": str(told["title"]), "detail": str(told["detail"]), "errors": errors}
    except (ValueError, KeyError, TypeError):
        detail = "It is no answer of this service: is LOWBIT_URL its address?"
        return {"title": f"HTTP {answer.status_code}", "detail": detail, "errors": []}
