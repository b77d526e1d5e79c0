"""Records of earlier versions are read as the present one; what is stored stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from lowbit_ray.errors import LedgerError
from lowbit_ray.evaluate import read_record
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.migration import SCHEMA, STEPS, migrate
from lowbit_ray.records import parse_record

ROOT = Path(__file__).parents[1]
KEPT = [*sorted((ROOT / "benchmarks" / "results").glob("h200-8b-*.json")), "record-smollm2-w8a8.json"]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: Path(path).name)
def test_every_kept_record_can_be_read_and_keeps_its_numbers(path: Path | str, fixtures: Path) -> None:
    stored = json.loads((fixtures / path).read_text())  # an absolute path stays itself
    record = parse_record(json.dumps(stored))
    assert record.schema_version == SCHEMA
    assert record.result is not None
    assert record.result.score == stored["result"]["score"]
    assert record.created_at.isoformat().replace("+00:00", "Z") == stored["created_at"]


def test_the_h200_records_are_of_version_1() -> None:
    old = json.loads((ROOT / "benchmarks" / "results" / "h200-8b-fp8.json").read_text())
    assert old["schema_version"] == 1
    record = parse_record(json.dumps(old))
    assert record.result is not None
    assert record.result.noise_floor.repeated is None
    assert record.isolation is None


def test_what_a_version_did_not_measure_is_empty_and_no_number() -> None:
    old = json.loads((ROOT / "benchmarks" / "results" / "h200-8b-fp8.json").read_text())
    del old["result"]["foreign_cpu"]
    record = parse_record(json.dumps(old))
    assert record.result is not None
    assert record.result.foreign_cpu == {}


def test_there_is_a_step_from_every_earlier_version() -> None:
    assert sorted(STEPS) == list(range(1, SCHEMA))


@pytest.mark.parametrize("version", [None, 0, SCHEMA + 1, "2", [1]])
def test_a_version_that_is_not_known_is_refused(version: object) -> None:
    with pytest.raises(ValueError, match="schema_version"):
        migrate({"schema_version": version})


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b'{"schema_version": 1}', b"\xff"])
def test_what_is_no_record_is_said(data: bytes) -> None:
    with pytest.raises(LedgerError, match="a stored record cannot be read"):
        parse_record(data)


def test_reading_changes_nothing_in_the_ledger(tmp_path: Path) -> None:
    ledger: Any = FolderLedger(tmp_path)
    data = (ROOT / "benchmarks" / "results" / "h200-8b-fp8.json").read_bytes()
    ledger.create("submissions/0123456789abcdef/record.json", data)
    record = read_record(ledger, "0123456789abcdef")
    assert record is not None
    assert record.schema_version == SCHEMA
    entry = ledger.read("submissions/0123456789abcdef/record.json")
    assert entry is not None
    assert entry.data == data
