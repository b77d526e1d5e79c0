import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.accuracy.data_files import read_rows
from lowbit_ray.measure.accuracy.items import ChoiceTarget, InstructionTarget, UnitTestTarget
from lowbit_ray.measure.accuracy.load_items import load_domain, make_items
from lowbit_ray.measure.accuracy.rows import read_row
from lowbit_ray.measure.folders import folder_revision
from lowbit_ray.tasks import AccuracyPlan, Domain, TextSource

MESSAGES = [{"role": "user", "content": "canary question"}]


def maths_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "messages": [{"role": "user", "content": f"What is {n} + 1?"}],
            "scorer": "maths",
            "target": str(n + 1),
        }
        for n in range(count)
    ]


def write_lines(folder: Path, rows: list[Any], name: str = "items.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def domain(folder: Path, items: int, **fields: Any) -> Domain:
    return Domain(items=items, max_tokens=8, source=TextSource(kind="folder", path=str(folder), **fields))


def test_rows_of_jsonl_files_become_items(tmp_path: Path) -> None:
    write_lines(tmp_path / "data", maths_rows(5))
    items = load_domain("math", domain(tmp_path / "data", 5), b"seed", evaluations=1)
    assert sorted(item.messages[0].content for item in items) == [f"What is {n} + 1?" for n in range(5)]
    assert len({item.id for item in items}) == 5


def test_rows_of_parquet_files_become_items(tmp_path: Path) -> None:
    rows = [
        {
            "messages": json.dumps(MESSAGES),
            "scorer": "choice",
            "target": "B",
            "options": ["x", "y", "z"],
            "cluster": 7,
        },
        {"messages": "plain", "scorer": "containment", "target": '["a", "b"]', "options": None, "cluster": 7},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "items.parquet")
    items = load_domain("knowledge", domain(tmp_path, 2), b"seed", evaluations=1)
    choice = next(item for item in items if item.scorer == "choice")
    assert isinstance(choice.target, ChoiceTarget)
    assert choice.target.options == ("x", "y", "z")
    assert choice.chance == pytest.approx(1 / 3)
    assert {item.cluster for item in items} == {"knowledge:7"}


def test_the_seed_orders_the_rows_and_evaluations_take_different_ones(tmp_path: Path) -> None:
    write_lines(tmp_path, maths_rows(20))
    pooled = load_domain("math", domain(tmp_path, 10), b"seed", evaluations=2)
    assert pooled == load_domain("math", domain(tmp_path, 10), b"seed", evaluations=2)
    assert pooled != load_domain("math", domain(tmp_path, 10), b"other", evaluations=2)
    assert len({item.cluster for item in pooled}) == 20


def test_a_row_drawn_twice_keeps_its_cluster_but_not_its_name(tmp_path: Path) -> None:
    write_lines(tmp_path, maths_rows(3))
    pooled = load_domain("math", domain(tmp_path, 3), b"seed", evaluations=2)
    assert len({item.cluster for item in pooled}) == 3
    assert len({item.id for item in pooled}) == 6


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    write_lines(tmp_path, maths_rows(3))
    with pytest.raises(ConfigError, match=r"too few rows.*found 3, expected at least 4"):
        load_domain("math", domain(tmp_path, 4), b"seed", evaluations=1)


def test_the_revision_of_a_folder_is_checked(tmp_path: Path) -> None:
    write_lines(tmp_path, maths_rows(3))
    revision = folder_revision(tmp_path, {".jsonl", ".parquet"})
    assert load_domain("math", domain(tmp_path, 3, revision=revision), b"seed", evaluations=1)
    write_lines(tmp_path, maths_rows(4))
    with pytest.raises(ConfigError, match="not those of the task"):
        load_domain("math", domain(tmp_path, 3, revision=revision), b"seed", evaluations=1)


def test_a_hub_data_set_needs_its_revision() -> None:
    source = TextSource(kind="hub", path="owner/name", split="test")
    with pytest.raises(ConfigError, match=r"owner/name: revision: .*exact revision"):
        load_domain("math", Domain(items=1, max_tokens=8, source=source), b"seed", evaluations=1)


def test_a_data_set_in_the_hubs_form_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` reads a folder by the same call as a repository of the hub."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    write_lines(tmp_path / "set", maths_rows(5), "test.jsonl")
    source = TextSource(kind="hub", path=str(tmp_path / "set"), revision="0" * 40, split="test", limit=4)
    rows = read_rows(source)
    assert [row["target"] for row in rows] == ["1", "2", "3", "4"]
    with pytest.raises(ConfigError, match="no such config, split or form"):
        read_rows(source.model_copy(update={"split": "nowhere"}))


def test_docstrings_are_no_items() -> None:
    with pytest.raises(ConfigError, match="cannot come from this source"):
        load_domain(
            "math",
            Domain(items=1, max_tokens=8, source=TextSource(kind="docstrings")),
            b"seed",
            evaluations=1,
        )


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is empty, found no files, expected files \.jsonl, \.parquet"):
        load_domain("math", domain(tmp_path, 1), b"seed", evaluations=1)


def test_a_line_that_is_no_json_is_named_by_its_row(tmp_path: Path) -> None:
    write_lines(tmp_path, maths_rows(2))
    with (tmp_path / "items.jsonl").open("a") as file:
        file.write('{"messages": canary\n')
    with pytest.raises(ConfigError, match=r"items.jsonl: row 2") as caught:
        load_domain("math", domain(tmp_path, 1), b"seed", evaluations=1)
    assert "canary" not in str(caught.value)


def test_a_column_may_hold_several_types_and_a_wrong_one_is_named_by_its_row(tmp_path: Path) -> None:
    rows = maths_rows(2)
    rows[1]["target"] = ["canary"]
    write_lines(tmp_path, rows)
    with pytest.raises(ConfigError, match=r"row 1: .*found target") as caught:
        load_domain("math", domain(tmp_path, 1), b"seed", evaluations=1)
    assert "canary" not in str(caught.value)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "items.parquet").write_bytes(b"canary" * 100)
    with pytest.raises(ConfigError, match=r"items.parquet: the file cannot be read") as caught:
        load_domain("math", domain(tmp_path, 1), b"seed", evaluations=1)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scorer": "canary"}, "scorer"),
        ({"scorer": None}, "scorer"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "canary"}]}, "messages"),
        ({"messages": [{"role": "canary", "content": "x"}, *MESSAGES]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages.0.content"),
        ({"target": None}, "target"),
        ({"target": True}, "target"),
        ({"chance": 1.5}, "chance"),
        ({"chance": "canary"}, "chance"),
        ({"scorer": "choice", "target": "D", "options": ["canary", "b"]}, "target"),
        ({"scorer": "choice", "target": "A", "options": ["canary"]}, "target.choice.options"),
        ({"scorer": "choice", "target": "A"}, "options"),
        ({"scorer": "unit_tests", "target": "canary = 1"}, "target"),
        ({"scorer": "unit_tests", "target": "assert f(1) == canary"}, "target"),
        ({"scorer": "unit_tests", "target": "assert f(1) > 2"}, "target"),
        ({"scorer": "unit_tests", "target": "assert f(("}, "target"),
        ({"scorer": "instructions", "target": "canary"}, "target"),
        ({"scorer": "instructions", "target": ["canary"]}, "target"),
        (
            {"scorer": "instructions", "target": [{"kind": "canary"}]},
            "target.instructions.constraints.0.kind",
        ),
        ({"scorer": "containment", "target": [1, "canary"]}, "target"),
    ],
)
def test_a_bad_row_is_named_with_its_field_and_without_its_content(
    change: dict[str, Any], field: str
) -> None:
    row = {"messages": MESSAGES, "scorer": "maths", "target": "canary answer", **change}
    with pytest.raises(ConfigError) as caught:
        read_row(row, number=3, domain="math", item_id="x", where="data")
    assert str(caught.value).startswith("data: row 3: ")
    assert f"found {field}: " in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("assertion", "expression", "expected"),
    [
        ("assert f(2) == 4", "f(2)", "4"),
        ("assert f([1, 2]) == {'a': -1}, 'message'", "f([1, 2])", "{'a': -1}"),
        ("assert f(2)", "bool(f(2))", "True"),
        ("assert not f(2)", "bool(f(2))", "False"),
    ],
)
def test_an_assertion_becomes_an_expression_and_a_literal(
    assertion: str, expression: str, expected: str
) -> None:
    row = {"messages": MESSAGES, "scorer": "unit_tests", "target": [assertion]}
    target = read_row(row, number=0, domain="code", item_id="x", where="data").target
    assert isinstance(target, UnitTestTarget)
    assert (target.checks[0].expression, target.checks[0].expected) == (expression, expected)


def test_messages_are_read_without_the_keys_that_parquet_adds() -> None:
    row = {"messages": [{**MESSAGES[0], "name": None}], "scorer": "maths", "target": "1"}
    assert read_row(row, number=0, domain="math", item_id="x", where="data").messages[0].role == "user"


def test_constraints_are_read_without_the_keys_that_parquet_adds() -> None:
    constraints = [
        {"kind": "lowercase", "text": None, "count": None},
        {"kind": "contains", "text": "x", "count": 0},
    ]
    row = {"messages": MESSAGES, "scorer": "instructions", "target": constraints}
    target = read_row(row, number=0, domain="instruction", item_id="x", where="data").target
    assert isinstance(target, InstructionTarget)
    assert [constraint.kind for constraint in target.constraints] == ["lowercase", "contains"]


def test_a_plan_mixes_generated_and_loaded_domains(tmp_path: Path) -> None:
    write_lines(tmp_path, maths_rows(6))
    plan = AccuracyPlan(domains={"math": domain(tmp_path, 3), "code": Domain(items=2, max_tokens=8)})
    items = make_items(plan, b"seed", evaluations=2)
    assert [item.domain for item in items] == ["math"] * 6 + ["code"] * 4
    assert len({item.id for item in items}) == 10
