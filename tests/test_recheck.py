"""The example record agrees with our formulas in every derived number; a changed one is found."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from lowbit_ray.errors import ConfigError
from lowbit_ray.recheck import recheck
from lowbit_ray.rules import load_rules

RULES = load_rules()


@pytest.fixture
def record(fixtures: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())
    return loaded


def statuses(record: dict[str, Any]) -> dict[str, str]:
    return {check.field: check.status for check in recheck(record, RULES, speed_floor=0.95)}


def test_every_derived_number_of_the_example_agrees(record: dict[str, Any]) -> None:
    found = statuses(record)
    assert len(found) == 23
    # the example does not print the error of its accuracy drop, so its score_se cannot be recomputed
    assert {field for field, status in found.items() if status != "agrees"} == {"result.score_se"}
    assert found["result.score_se"] == "unknown"


def test_with_the_error_of_the_drop_the_score_error_agrees_too(record: dict[str, Any]) -> None:
    record["result"]["mean_drop_se"] = 0.00302
    assert statuses(record)["result.score_se"] == "agrees"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("score", 1.6162),
        ("score", 0.1615),
        ("drift", 0.21),
        ("speed", 1.3748),
        ("memory", 2.0086),
        ("qualified", False),
        ("speeds.serve", 1.4499),
        ("memories.interactive", 2.0084),
        ("peak_memory.serve.kv_gib", 19.12),
        ("speed_serve", 1.4491),
    ],
)
def test_a_changed_number_is_found(record: dict[str, Any], path: str, value: float) -> None:
    changed = copy.deepcopy(record)
    *parents, last = path.split(".")
    target = changed["result"]
    for name in parents:
        target = target[name]
    target[last] = value
    assert "differs" in statuses(changed).values()


def test_a_missing_measured_field_is_named(record: dict[str, Any]) -> None:
    del record["result"]["kl"]["kl_se"]
    with pytest.raises(ConfigError, match=r"result\.kl\.kl_se"):
        statuses(record)


def test_a_record_without_a_result_is_refused(record: dict[str, Any]) -> None:
    record["result"] = None
    with pytest.raises(ConfigError, match="no result"):
        statuses(record)
