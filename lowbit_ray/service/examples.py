"""An example of every JSON answer in the API's description: `examples.json`, from real answers of a real service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from lowbit_ray.rules import DEFAULT_RULES

__all__ = ["EXAMPLES", "describe"]

FILE = Path(__file__).with_name("examples.json")
PROBLEM = "problem"
ANSWERS: dict[tuple[str, str], str] = {
    ("get", "/healthz"): "alive",
    ("get", "/readyz"): "ready",
    ("get", "/api/rules"): "rules",
    ("get", "/api/tasks"): "tasks",
    ("get", "/api/me"): "me",
    ("get", "/api/board/{task}"): "board",
    ("get", "/api/submissions"): "page",
    ("post", "/api/submissions"): "waiting",
    ("get", "/api/submissions/{id}"): "record",
    ("delete", "/api/submissions/{id}"): "cancelled",
    ("get", "/api/submissions/{id}/logs"): "logs",
    ("put", "/api/submissions/{id}/flag"): "record",
    ("delete", "/api/submissions/{id}/flag"): "record",
    ("get", "/api/audit"): "audit",
}
"""Which example is that of an operation's good answer."""


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found | {"rules": json.loads(DEFAULT_RULES.read_text())}


EXAMPLES = _read()


def describe(app: FastAPI) -> None:
    """Puts the examples into the description of the application."""
    bare = app.openapi

    def with_examples() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = bare()
        named = {name: {"value": EXAMPLES[name]} for name in sorted(set(ANSWERS.values()))}
        document["components"]["examples"] = named
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _add(operation["responses"], ANSWERS.get((method, path)))
        return document

    app.openapi = with_examples  # type: ignore[method-assign]


def _add(responses: dict[str, Any], name: str | None) -> None:
    for status, response in responses.items():
        for media, content in response.get("content", {}).items():
            if media == "application/problem+json":
                content["example"] = EXAMPLES[PROBLEM] | {
                    "status": int(status),
                    "title": response["description"],
                }
            elif media == "application/json" and name is not None:
                content["examples"] = {name: {"$ref": f"#/components/examples/{name}"}}
