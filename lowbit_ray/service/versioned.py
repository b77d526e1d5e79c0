"""Answers that their reader may have already: each carries an `ETag`, and is not sent again to who names it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.responses import Response

from lowbit_ray.service.problems import header

__all__ = ["UNCHANGED", "Versioned", "answer"]

UNCHANGED: dict[int | str, dict[str, Any]] = {
    200: {"headers": {"ETag": header("Of the content; `If-None-Match` saves sending it again")}},
    304: {"description": "It has not changed since the answer whose `ETag` is in `If-None-Match`"},
}
"""For a route's `responses`."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """A body and the tag of its content."""

    data: bytes
    tag: str

    @staticmethod
    def of(text: str | bytes) -> Versioned:
        """The tag is the same in every process of the service."""
        data = text.encode() if isinstance(text, str) else text
        return Versioned(data, f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"')


def answer(
    request: Request,
    content: Versioned,
    media_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The content, or 304 to who has it."""
    told = {"ETag": content.tag, **(headers or {})}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if content.tag in known or known == ["*"]:
        return Response(None, 304, told)
    return Response(content.data, 200, told, media_type=media_type)
