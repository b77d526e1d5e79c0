"""One row of a domain's data set → an item.

    messages   list of {role, content}, or the question as one text, or the name of such a column's JSON text
    scorer     maths | choice | unit_tests | instructions | containment
    target     maths: the answer. choice: the letter, with `options` beside. unit_tests: assertions of the
               form `assert call == literal`, `assert call` or `assert not call`, a list or one a line.
               instructions: list of {kind, text, count}. containment: a text or a list of texts. Lists and
               objects may be JSON texts, as a Parquet column has one type.
    options    choice only: the texts of the options, A first
    cluster    optional: rows of one passage share it; the row's own number otherwise
    chance     optional: probability of a right guess; 1 / options for choice, 0 otherwise

A row that cannot be read is a ConfigError with the row's number and the field, never with what is in it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.accuracy.items import DomainName, Item

__all__ = ["read_row"]


class _BadField(Exception):
    """A field's name and what is wrong with it; becomes a ConfigError with the row's number."""


def read_row(row: Mapping[str, Any], *, number: int, domain: DomainName, item_id: str, where: str) -> Item:
    """The item of row `number` (from 0) of the data set `where`; ConfigError as above."""
    try:
        scorer = row.get("scorer")
        if not isinstance(scorer, str) or scorer not in _TARGETS:
            raise _BadField(f"scorer: not one of {', '.join(_TARGETS)}")
        target = {"scorer": scorer, **_TARGETS[scorer](row)}
        options = target.get("options")
        chance = row.get("chance")
        fields = {
            "id": item_id,
            "domain": domain,
            "messages": _messages(row),
            "target": target,
            "cluster": f"{domain}:{number if row.get('cluster') is None else row['cluster']}",
            "chance": (1 / len(options) if options else 0.0) if chance is None else chance,
        }
        return Item.model_validate(fields)
    except _BadField as error:
        problem = str(error)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['type'].replace('_', ' ')}"
    # raised out here, as an exception's context would print the row's values in a traceback
    raise ConfigError(
        "a row of the accuracy data cannot be read",
        where=f"{where}: row {number}",
        found=problem,
        expected="the fields that lowbit_ray.measure.accuracy.rows describes",
        remedy="Correct the data set and pin its new revision.",
    )


def _unpacked(row: Mapping[str, Any], field: str) -> Any:
    """A field's value; a text that holds JSON lists or objects is read as such."""
    value = row.get(field)
    if value is None or value == "":
        raise _BadField(f"{field}: missing")
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _messages(row: Mapping[str, Any]) -> list[Any]:
    value = _unpacked(row, "messages")
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, Sequence) or not value:
        raise _BadField("messages: not a list of messages")
    last = value[-1]
    if not isinstance(last, Mapping) or last.get("role") != "user":
        raise _BadField("messages: the last one is not the user's")
    return [_without_nothing(message, "messages") for message in value]


def _texts(value: Any, field: str) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Sequence) or not all(isinstance(text, str) and text for text in found):
        raise _BadField(f"{field}: not a text or a list of texts")
    return list(found)


def _maths(row: Mapping[str, Any]) -> dict[str, Any]:
    value = row.get("target")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _BadField("target: neither a number nor a text")
    return {"answer": str(value)}


def _choice(row: Mapping[str, Any]) -> dict[str, Any]:
    options = _texts(_unpacked(row, "options"), "options")
    letter = row.get("target")
    if not isinstance(letter, str) or letter not in list("ABCDEFGHIJ"[: len(options)]):
        raise _BadField("target: not the letter of an option")
    return {"answer": letter, "options": options}


def _unit_tests(row: Mapping[str, Any]) -> dict[str, Any]:
    value = _unpacked(row, "target")
    lines = value.splitlines() if isinstance(value, str) else _texts(value, "target")
    return {"checks": [_check(line) for line in lines if line.strip()]}


def _check(assertion: str) -> dict[str, str]:
    """`assert f(2) == 4` → expression `f(2)`, expected `4`: only the expression goes into the sandbox."""
    problem = "target: a test is not `assert call == literal`, `assert call` or `assert not call`"
    try:
        statement = ast.parse(assertion.strip()).body[0]
    except (SyntaxError, ValueError, MemoryError, RecursionError, IndexError):
        raise _BadField(problem) from None
    if not isinstance(statement, ast.Assert):
        raise _BadField(problem)
    test = statement.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        try:
            expected = repr(ast.literal_eval(test.comparators[0]))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise _BadField(problem) from None
        return {"expression": ast.unparse(test.left), "expected": expected}
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    call = test.operand if isinstance(test, ast.UnaryOp) and negated else test
    if not isinstance(call, ast.Call):
        raise _BadField(problem)
    return {"expression": f"bool({ast.unparse(call)})", "expected": str(not negated)}


def _instructions(row: Mapping[str, Any]) -> dict[str, Any]:
    value = _unpacked(row, "target")
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _BadField("target: not a list of constraints")
    # Parquet gives every object all keys, with None where one has no value
    return {"constraints": [_without_nothing(constraint, "target") for constraint in value]}


def _without_nothing(value: Any, field: str) -> dict[str, Any]:
    """An object of a list without the keys that have no value."""
    if not isinstance(value, Mapping):
        raise _BadField(f"{field}: not a list of objects")
    return {key: inner for key, inner in value.items() if inner is not None}


def _containment(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"any_of": _texts(_unpacked(row, "target"), "target")}


_TARGETS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "maths": _maths,
    "choice": _choice,
    "unit_tests": _unit_tests,
    "instructions": _instructions,
    "containment": _containment,
}
