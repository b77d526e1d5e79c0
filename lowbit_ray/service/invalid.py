"""What is wrong with the fields of a request, as a person reads it: pydantic's findings without its patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lowbit_ray.rules import _Frozen

__all__ = ["FieldProblem", "field_problems"]

PATTERNS = {
    "precision": "W<bits>A<bits>KV<bits>, such as W8A8KV8",
    "repository": "owner/name",
    "commit": "all 40 hexadecimal digits of a commit: a branch or a tag can move",
    "path.id": "16 hexadecimal digits",
    "path.task": "a task of GET /api/tasks",
    "path.name": "a name of GET /api/submissions/{id}/logs",
    "query.cursor": "`next` of a page",
    "query.after": "a time such as 20261130T100000",
    "header.Idempotency-Key": "1 to 128 printable ASCII characters without a space",
}
"""What a field with a pattern looks like."""


class FieldProblem(_Frozen):
    """What is wrong with one field."""

    field: str
    """Such as `checkpoint` or `query.limit`."""
    message: str
    expected: str | None = None
    """What would have been right; None where the message says it."""


def field_problems(found: Sequence[Mapping[str, Any]]) -> tuple[FieldProblem, ...]:
    """One problem a finding of pydantic's, in its order."""
    return tuple(_problem(one) for one in found)


def _problem(found: Mapping[str, Any]) -> FieldProblem:
    field, context = _field(found["loc"]), found.get("ctx", {})
    kind, message, expected = found["type"], str(found["msg"]).removeprefix("Value error, "), None
    if kind == "json_invalid":
        field, message = "body", f"not JSON at character {found['loc'][-1]}: {context['error']}"
    elif kind == "missing":
        message = "missing"
    elif kind == "extra_forbidden":
        message = "no such field"
    elif kind == "string_pattern_mismatch":
        message, expected = "not of the right form", PATTERNS.get(field, context["pattern"])
    elif kind == "literal_error":
        message, expected = "no such value", context["expected"]
    elif kind == "string_too_long":
        message, expected = "too long", f"at most {context['max_length']} characters"
    elif kind == "string_too_short":
        message, expected = "too short", f"at least {context['min_length']} characters"
    return FieldProblem(field=field, message=message, expected=expected)


def _field(location: Sequence[int | str]) -> str:
    first, *rest = location
    parts = rest if first == "body" and rest else [first, *rest]
    return ".".join(str(part) for part in parts if not str(part).isdigit() or len(parts) == 1)
