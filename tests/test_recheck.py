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


def test_a_score_that_prints_as_zero_is_not_taken_for_a_broken_rule(record: dict[str, Any]) -> None:
    """Admitted and lost: a tenth of exp(−79 / 10) rounds to 0.0001, what is left of less to 0."""
    result = record["result"]
    result |= {"mean_drop": 1.0, "score": 0.0, "qualified": False, "reason": "gate failed: accuracy"}
    result["kl"]["kl"] = 0.149
    result["quality"]["tier"] = None
    result |= {"drift": 80.3392, "efficiency_gain": 0.9, "length_shift": 2.4}
    found = {check.field: check.recomputed for check in recheck(record, RULES, speed_floor=0.95)}
    assert 0 < float(found["result.score"] or 0) < 1e-4
    record["result"]["admitted"] = False
    found = {check.field: check.recomputed for check in recheck(record, RULES, speed_floor=0.95)}
    assert found["result.score"] == 0


def test_a_missing_measured_field_is_named(record: dict[str, Any]) -> None:
    del record["result"]["kl"]["kl_se"]
    with pytest.raises(ConfigError, match=r"result\.kl\.kl_se"):
        statuses(record)


def test_a_record_without_a_result_is_refused(record: dict[str, Any]) -> None:
    record["result"] = None
    with pytest.raises(ConfigError, match="no result"):
        statuses(record)
