"""The API against its own schema: complete, with examples, and kept to whatever is sent."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from pydantic import TypeAdapter
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import issue_token
from lowbit_ray.service.app import create_app
from lowbit_ray.service.limits import Limits, Rate
from lowbit_ray.service.problems import Problem
from lowbit_ray.settings import Settings

BOUNDLESS = Limits(reads=Rate(1e9, 1e9), writes=Rate(1e9, 1e9), wrong_tokens=Rate(1e9, 1e9))


def routes() -> list[tuple[str, str]]:
    """Of the schema, which needs no ledger."""
    with tempfile.TemporaryDirectory() as folder:
        paths = create_app(FolderLedger(Path(folder)), Settings()).openapi()["paths"]
    return [(method, path) for path, methods in paths.items() for method in methods]


ROUTES = routes()
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def token(ledger_folder: Path) -> str:
    return issue_token(FolderLedger(ledger_folder), "olga", "organizer")


@pytest.fixture(scope="module")
def ledger_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schema") / "ledger"


@pytest.fixture(scope="module")
def app(ledger_folder: Path) -> Iterator[FastAPI]:
    app = create_app(FolderLedger(ledger_folder), Settings(ledger=str(ledger_folder)), limits=BOUNDLESS)
    with TestClient(app):
        yield app


@pytest.fixture(scope="module")
def api(app: FastAPI) -> Any:
    return schemathesis.openapi.from_asgi("/api/openapi.json", app)


def fuzz(api: Any, method: str, path: str, headers: dict[str, str], examples: int) -> None:
    """Asks one operation whatever its schema allows, and what it does not."""
    for mode in GenerationMode:

        @seed(20261130)
        @settings(
            max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=api[path][method].as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            case.call_and_validate(headers=headers, checks=CHECKS)

        with contextlib.suppress(Unsatisfiable):  # without parameters nothing can be wrong
            ask()


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_answer_to_anything_is_one_that_the_schema_has(
    api: Any, token: str, method: str, path: str
) -> None:
    fuzz(api, method, path, {"Authorization": f"Bearer {token}"}, 20)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_whoever_has_no_token_breaks_nothing(api: Any, method: str, path: str) -> None:
    fuzz(api, method, path, {}, 3)


def test_every_operation_is_described_and_every_parameter_typed(app: FastAPI) -> None:
    document = app.openapi()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
            assert operation["tags"], (method, path)
            for parameter in operation.get("parameters", []):
                assert parameter["schema"], (method, path)
            if path.startswith("/api/"):
                assert "401" in operation["responses"], (method, path)


def test_what_is_handed_in_has_examples(app: FastAPI) -> None:
    fields = app.openapi()["components"]["schemas"]["NewSubmission"]["properties"]
    for name in ("task", "repository", "commit", "checkpoint", "engine", "precision", "method"):
        assert fields[name]["examples"], name
    for name, value in fields.items():
        assert value.get("description") or value.get("examples"), name


def test_every_answer_has_an_example_that_is_one(app: FastAPI) -> None:
    models = {
        (method.lower(), route.path): route.response_model
        for route in app.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods
    }
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                content = response.get("content", {})
                if "application/problem+json" in content:
                    example = content["application/problem+json"]["example"]
                    assert Problem.model_validate_json(json.dumps(example)).status == int(status)
                elif "application/json" in content:
                    ((name, reference),) = content["application/json"]["examples"].items()
                    assert reference == {"$ref": f"#/components/examples/{name}"}
                    example = json.dumps(app.openapi()["components"]["examples"][name]["value"])
                    model = TypeAdapter(models[method, path])
                    assert model.dump_python(model.validate_json(example), mode="json"), (method, path)


def test_every_parameter_has_an_example_or_says_its_values(app: FastAPI) -> None:
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", []):
                text = json.dumps(parameter)
                said = any(f'"{word}"' in text for word in ("examples", "example", "enum", "default"))
                assert said, (method, path, parameter["name"])


def test_headers_of_answers_are_described(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    handed_in = paths["/api/submissions"]["post"]["responses"]
    assert "Location" in handed_in["201"]["headers"]
    assert "Retry-After" in handed_in["429"]["headers"]
    assert "WWW-Authenticate" in handed_in["401"]["headers"]
    for path in ("/api/rules", "/api/board/{task}", "/api/board/{task}.csv", "/api/submissions/{id}"):
        responses = paths[path]["get"]["responses"]
        assert "ETag" in responses["200"]["headers"], path
        assert "content" not in responses["304"], path


MEASURED = ["Row", "Listed", "Result", "KLPart", "PeakMemory", "BudgetRun", "Audit", "Gate", "StageTime"]


@pytest.mark.parametrize("schema", MEASURED)
def test_every_measured_number_says_its_unit_or_what_it_is(app: FastAPI, schema: str) -> None:
    fields = app.openapi()["components"]["schemas"][schema]["properties"]
    for name, field in fields.items():
        kinds = {field.get("type"), *(one.get("type") for one in field.get("anyOf", ()))}
        in_name = name.endswith(("_gib", "_s", "_ms", "_seconds", "_hours"))
        if "number" in kinds and not in_name:
            assert field.get("description"), f"{schema}.{name}"
