"""The kept H200 runs: each record recomputes, and the engines' own words are read as the records say."""

from pathlib import Path

import pytest

from lowbit_ray.checkpoint.executed import executed_precision
from lowbit_ray.engines.accounts.gpu import read_gpu_memory
from lowbit_ray.engines.accounts.releases import release_of
from lowbit_ray.recheck import recheck_file
from lowbit_ray.records import Record, Result

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
RECORDS = sorted(RESULTS.glob("h200-*.json"))
NAMES = ("fp8", "w4a16")


def result_of(name: str) -> Result:
    result = Record.model_validate_json((RESULTS / f"h200-8b-{name}.json").read_bytes()).result
    assert result is not None
    return result


def log_of(fixtures: Path, name: str) -> str:
    return (fixtures / f"vllm-0.25.1-h200-qwen3-8b-shape-{name}-ct.log").read_text()


def test_there_are_records() -> None:
    assert {f"h200-8b-{name}" for name in NAMES} <= {path.stem for path in RECORDS}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_derived_number_recomputes(path: Path) -> None:
    assert {check.status for check in recheck_file(path)} == {"agrees"}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_whole_evaluation_cost_less_than_half_of_the_arenas(path: Path) -> None:
    record = Record.model_validate_json(path.read_bytes())
    assert 0 < record.charged_hours <= 0.39


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_read_from_the_log_as_the_record_has_it(fixtures: Path, name: str) -> None:
    startup = result_of(name).engine.startup
    assert startup is not None
    memory = read_gpu_memory(log_of(fixtures, name), release_of("0.25.1", {})[1], 1)
    assert memory.weights == startup.weights_gib
    assert memory.pool == startup.kv_cache_gib
    assert memory.other == startup.other_gib


@pytest.mark.parametrize(("name", "label"), [("fp8", "W8A8KV8"), ("w4a16", "W4A16KV16")])
def test_the_executed_precision_is_read_from_kernels_and_pool(fixtures: Path, name: str, label: str) -> None:
    result = result_of(name)
    startup, anchor = result.engine.startup, result.anchor.startup
    assert startup is not None
    assert anchor is not None
    executed = executed_precision(
        result.precision,
        startup.kv_cache_dtype,
        log_of(fixtures, name),
        kv_bytes_per_token=startup.kv_bytes_per_token,
        bf16_kv_bytes_per_token=anchor.kv_bytes_per_token,
    )
    assert executed.label == label
