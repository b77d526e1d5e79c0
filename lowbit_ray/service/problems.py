"""Errors as RFC 9457 has them, `application/problem+json`, each naming the field that is wrong.

What a client sent is not sent back to it: an error names fields and says what is expected of them.
"""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lowbit_ray.errors import InfraError, SubmissionError
from lowbit_ray.rules import _Frozen
from lowbit_ray.service.invalid import FieldProblem, field_problems

__all__ = ["Problem", "Refusal", "header", "install_handlers", "problem_response", "problems"]

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Problem(_Frozen):
    """An error."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    errors: tuple[FieldProblem, ...] = ()


class Refusal(Exception):
    """A request that is refused; becomes a problem."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        *,
        field: str | None = None,
        expected: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(title)
        errors = () if field is None else (FieldProblem(field=field, message=title, expected=expected),)
        self.problem = Problem(title=title, status=status, detail=detail, errors=errors)
        self.headers = dict(headers or {})


def problem_response(status: int, title: str, detail: str = "", *, close: bool = False) -> Response:
    """A problem as an answer; `close`: the connection ends with it."""
    headers = {"Connection": "close"} if close else {}
    return _answer(Problem(title=title, status=status, detail=detail), headers)


WITH = {
    401: ("WWW-Authenticate", "How to show a token: `Bearer`"),
    429: ("Retry-After", "Seconds until it may be asked again"),
    503: ("Retry-After", "Seconds after which to try again"),
}
"""The header that comes with a status."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: these statuses are problems."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        found[status] = {"description": http.HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}}
        if status in WITH:
            name, words = WITH[status]
            found[status]["headers"] = {name: header(words)}
    return found


def header(words: str) -> dict[str, Any]:
    """One header, for a route's `responses`."""
    return {"description": words, "schema": {"type": "string"}}


def install_handlers(app: FastAPI) -> None:
    """Every error of the application becomes a problem."""
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(SubmissionError, _submission)
    app.add_exception_handler(InfraError, _ours)
    app.add_exception_handler(Exception, _bug)


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _answer(error.problem, error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    broken = any(one["type"] == "json_invalid" for one in error.errors())
    fields = field_problems(error.errors())
    title = "The body is not JSON" if broken else "The request is not valid"
    detail = "; ".join(_said(one) for one in fields)[:1000]
    return _answer(Problem(title=title, status=400 if broken else 422, detail=detail, errors=fields), {})


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = http.HTTPStatus(error.status_code).phrase
    detail = "" if error.detail == title else str(error.detail)
    return _answer(Problem(title=title, status=error.status_code, detail=detail), dict(error.headers or {}))


async def _submission(request: Request, error: Exception) -> Response:
    assert isinstance(error, SubmissionError)
    expected = None if error.expected is None else str(error.expected)
    field = FieldProblem(field=error.where or "body", message=error.summary, expected=expected)
    return _answer(Problem(title=error.summary, status=422, detail=error.remedy, errors=(field,)), {})


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, InfraError)
    log.error("%s %s: %s", request.method, request.url.path, error)
    detail = "The fault is ours. Nothing that was accepted is lost; try again."
    return _answer(Problem(title="The store is away", status=503, detail=detail), {"Retry-After": "5"})


async def _bug(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    detail = "The fault is ours and has been noted."
    return _answer(Problem(title="Internal Server Error", status=500, detail=detail), {})


def _answer(problem: Problem, headers: Mapping[str, str]) -> Response:
    return JSONResponse(problem.model_dump(mode="json"), problem.status, dict(headers), media_type=MEDIA_TYPE)


def _said(one: FieldProblem) -> str:
    expected = f", expected {one.expected}" if one.expected else ""
    return f"{one.field}: {one.message}{expected}"
