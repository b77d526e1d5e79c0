"""Every task file loads; a damaged one is refused by the field's name."""

from pathlib import Path
from typing import get_args

import pytest
import yaml

from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.accuracy.items import DomainName
from lowbit_ray.rules import WORKLOAD_NAMES, load_rules
from lowbit_ray.tasks import TASKS, list_tasks, load_task


@pytest.mark.parametrize("name", list_tasks())
def test_each_task_runs_the_three_workloads_and_the_five_domains(name: str) -> None:
    task = load_task(name)
    assert tuple(task.timed_workloads(load_rules())) == WORKLOAD_NAMES
    assert set(task.accuracy.domains) == set(get_args(DomainName))


@pytest.mark.parametrize(("name", "limit"), [("qwen3-8b", 0.034), ("qwen35-27b", 0.133)])
def test_the_audit_limits_are_the_rules(name: str, limit: float) -> None:
    task, rules = load_task(name), load_rules()
    assert task.gap_limit(rules) == limit == task.audit.median_gap_limit


def test_other_rules_have_another_audit_limit_and_a_task_they_do_not_name_its_own() -> None:
    rules = load_rules()
    audit = rules.engine.timed_output_audit.model_copy(update={"median_gap_limit_nats": {"qwen3-8b": 0.05}})
    engine = rules.engine.model_copy(update={"timed_output_audit": audit})
    changed = rules.model_copy(update={"engine": engine})
    assert load_task("qwen3-8b").gap_limit(changed) == 0.05
    assert load_task("smollm2-135m").gap_limit(changed) == load_task("smollm2-135m").audit.median_gap_limit


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen35-27b"])
def test_wikitext_is_one_text_of_which_every_window_counts(name: str) -> None:
    """Published perplexities of WikiText-2 are of its rows joined by an empty line."""
    plan = load_task(name).perplexity["wikitext2"]
    assert (plan.source.joined_by, plan.windows, plan.window_len) == ("\n\n", None, 2048)


def test_a_task_without_its_own_floor_takes_the_rules() -> None:
    assert load_task("qwen3-8b").floor(load_rules()) == 0.95


def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="qwen35-27b"):
        load_task("qwen3-9b")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pod", {"cpus": 0, "memory_gib": 1}),
        ("surprise", 1),
        ("audit", {"median_gap_limit": -1}),
        ("id", "other"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, field: str, value: object) -> None:
    content = yaml.safe_load((TASKS / "qwen3-8b.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**content, "id": "mine", field: value}))
    with pytest.raises(ConfigError, match=rf"mine\.yaml: {field}"):
        load_task("mine", tmp_path)


def test_text_that_is_not_yaml_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        load_task("mine", tmp_path)
