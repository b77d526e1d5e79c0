"""The published rules load, and a damaged rules file is refused by the field's name."""

import json
from pathlib import Path
from typing import Any

import pytest

from lowbit_ray.errors import ConfigError
from lowbit_ray.rules import DEFAULT_RULES, WORKLOAD_NAMES, load_rules, parse_rules


def changed(path: str, value: Any, *, remove: bool = False) -> str:
    rules = json.loads(DEFAULT_RULES.read_text())
    *parents, last = path.split(".")
    target = rules
    for name in parents:
        target = target[name]
    if remove:
        del target[last]
    else:
        target[last] = value
    return json.dumps(rules)


def test_the_published_rules_load_with_their_numbers() -> None:
    rules = load_rules()
    assert rules.version == "23"
    assert tuple(rules.workloads) == WORKLOAD_NAMES
    assert rules.gate.quality.margins.a == 0.03
    assert rules.engine.timed_output_audit.median_gap_limit_nats["qwen35-27b"] == 0.133


def test_the_model_gives_back_every_key_of_the_file() -> None:
    published = json.loads(DEFAULT_RULES.read_text())
    ours = load_rules().model_dump(mode="json", by_alias=True, exclude_defaults=False)
    assert ours["rules"].pop("repeats") == 1  # ours, with a default
    assert ours == published


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("rules.scale", 0),
        ("rules.w_acc", 1.5),
        ("rules.kl_points", "much"),
        ("rules.kl_points", float("nan")),
        ("engine_flags.gpu_memory_utilization", 1.2),
        ("workloads.serve.output_len", 1),
        ("workloads.serve.metric", "goodput"),
        ("engine.budget_factor", 0.9),
        ("rules.surprise", 1),
    ],
)
def test_a_field_out_of_range_or_unknown_is_named(path: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        parse_rules(changed(path, value), "v24.json")
    assert f"v24.json: {path}" in str(error.value)


@pytest.mark.parametrize(
    "path", ["version", "rules.w_kl", "workloads.interactive.max_concurrency", "engine.context_gib"]
)
def test_a_missing_field_is_named(path: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_rules(changed(path, None, remove=True), "v24.json")
    assert f"v24.json: {path}" in str(error.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("rules.version", "22"),
        ("contract.kl_ceiling_nats", 0.2),
        ("cost.scale_gpu_hours", 50),
        ("rules.workloads", 2),
    ],
)
def test_two_fields_that_must_agree_are_compared(path: str, value: Any) -> None:
    with pytest.raises(ConfigError, match="disagree"):
        parse_rules(changed(path, value), "v24.json")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_rules(Path("/nowhere/v24.json"))


def test_text_that_is_not_json_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"v24\.json"):
        parse_rules("{", "v24.json")
