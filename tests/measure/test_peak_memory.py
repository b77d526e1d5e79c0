"""Peak memory: the example record's numbers, and every way in which there is none."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from loads import workload

from lowbit_ray.errors import EngineAnswerError, InfraError
from lowbit_ray.measure.memory import peak_memory
from lowbit_ray.measure.runs import Percentiles, WorkloadRun
from lowbit_ray.rules import load_rules

FLAT = Percentiles(mean=1, p50=1, p90=1, p95=1, p99=1, max=1)


@dataclass(frozen=True, slots=True)
class Accounts:
    weights_gib: float
    other_gib: float
    kv_cache_gib: float


def run(kv_usage: float | None, running: float | None = 4) -> WorkloadRun:
    return WorkloadRun(
        name="serve",
        output_throughput=100,
        median_tpot_ms=10,
        ttft_ms=FLAT,
        tpot_ms=FLAT,
        itl_ms=FLAT,
        e2e_ms=FLAT,
        requests=8,
        mean_input_len=16,
        mean_output_len=8,
        wall_s=1,
        decode_share=1,
        client_cpu_s=0,
        client_cpu_share=0,
        kv_usage=kv_usage,
        running=running,
        prefix_cache_hits=0,
        token_ids_returned=True,
        min_tokens_accepted=True,
        warm_up_passes=0,
    )


@pytest.mark.parametrize("name", ["serve", "interactive", "long_context"])
def test_the_examples_peaks_come_out_of_its_parts(fixtures: Path, name: str) -> None:
    result = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())["result"]
    shown, pool = result["peak_memory"][name], result["engine"]["startup"]["kv_cache_gib"]
    accounts = Accounts(shown["weights_gib"], shown["other_gib"], pool)
    plan = load_rules().workloads[name]
    peak = peak_memory(accounts, run(shown["kv_gib"] / pool), plan, device_peak_gib=shown["device_peak_gib"])
    assert peak.peak_gib == pytest.approx(shown["peak_gib"], abs=0.002)
    tokens = plan.max_concurrency * (plan.input_len + plan.output_len)
    printed = 0.0005 * 2**30 / tokens  # the example prints GiB to three digits, bytes to one
    assert peak.kv_bytes_per_token == pytest.approx(shown["kv_bytes_per_token"], abs=printed + 0.5)
    assert set(peak.model_dump()) == set(shown)


def test_an_engine_without_accounts_has_the_devices_peak() -> None:
    peak = peak_memory(None, run(None), workload(), device_peak_gib=12.5)
    assert (peak.peak_gib, peak.device_peak_gib, peak.weights_gib) == (12.5, 12.5, None)


@pytest.mark.parametrize("device", [None, 0.0, float("nan")])
def test_without_accounts_and_device_there_is_no_peak(device: float | None) -> None:
    with pytest.raises(InfraError, match="no peak memory"):
        peak_memory(None, run(0.5), workload(), device_peak_gib=device)


@pytest.mark.parametrize("usage", [None, 0.0, 1.01])
def test_a_usage_that_cannot_be_true_is_an_error_that_names_both_gauges(usage: float | None) -> None:
    with pytest.raises(EngineAnswerError, match="vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc"):
        peak_memory(Accounts(1, 1, 1), run(usage), workload())
