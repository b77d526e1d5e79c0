"""What the tests of the service ask of it."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = f"owner/name@{COMMIT}"
TASK = "qwen3-8b"


def body(**changes: Any) -> dict[str, Any]:
    """A submission that is taken, but for the changes."""
    return {"task": TASK, "checkpoint": HUB, "method": "round to nearest", "precision": "W8A8KV8"} | changes


def submit(client: TestClient, headers: dict[str, str], **changes: Any) -> Any:
    """Hands it in."""
    return client.post("/api/submissions", json=body(**changes), headers=headers)
