"""Start-up accounts, from real logs and from real logs reworded for other releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rewording import of_rank, reword, with_pool

from lowbit_ray.engines.accounts import Startup, keeps_accounts, offload_findings, read_startup
from lowbit_ray.errors import EngineError, InfraError, PodError
from lowbit_ray.measure.memory import peak_memory
from lowbit_ray.measure.workload import WorkloadRun
from lowbit_ray.rules import load_rules

LENGTH = 32768


@pytest.fixture(scope="session")
def dense(fixtures: Path) -> str:
    """V2 runner, no graph estimate."""
    return (fixtures / "vllm-0.25.1-h200-qwen3-8b-bf16.log").read_text()


@pytest.fixture(scope="session")
def hybrid(fixtures: Path) -> str:
    """V1 runner, graphs estimated at 0.75 GiB and captured in 0.91."""
    return (fixtures / "vllm-0.25.1-h200-qwen35-27b-bf16.log").read_text()


@pytest.fixture(scope="session")
def dense_metrics(fixtures: Path) -> str:
    return with_pool((fixtures / "vllm-0.25.1-h200.metrics").read_text(), 797_680, LENGTH)


@pytest.fixture(scope="session")
def hybrid_metrics(fixtures: Path) -> str:
    return (fixtures / "vllm-0.25.1-h200-qwen35-27b.metrics").read_text()


@pytest.fixture(scope="session")
def cpu_log(fixtures: Path) -> str:
    return (fixtures / "vllm-0.32.0-cpu-smollm2-bf16.log").read_text()


@pytest.fixture(scope="session")
def cpu_metrics(fixtures: Path) -> str:
    return (fixtures / "vllm-0.32.0-cpu-smollm2-bf16.metrics").read_text()


def parts(startup: Startup) -> tuple[float, float | None, float | None, float, float]:
    return (
        startup.weights_gib,
        startup.peak_activation_gib,
        startup.non_torch_gib,
        startup.cuda_graph_gib,
        startup.kv_cache_gib,
    )


# ---- real logs


def test_0_25_1_with_the_v2_runner(dense: str, dense_metrics: str) -> None:
    startup = read_startup(dense, dense_metrics)
    assert parts(startup) == (15.27, 0.78, 0.22, 0.60, 109.55)
    assert startup.other_gib == pytest.approx(1.60)
    assert (startup.runner, startup.release, startup.kv_cache_tokens) == ("V2", "0.25.1", 797_680)
    assert startup.load_seconds == 1.735363
    assert startup.engine_init_seconds == 31.97
    assert startup.max_concurrency.sequences == 24.34
    assert startup.max_concurrency.tokens_per_request == LENGTH


def test_0_25_1_with_the_v1_runner(hybrid: str, hybrid_metrics: str) -> None:
    startup = read_startup(hybrid, hybrid_metrics)
    assert parts(startup) == (50.22, 2.58, 0.25, 0.91, 72.01)
    assert startup.other_gib == pytest.approx(3.74)
    assert (startup.runner, startup.kv_block_size, startup.kv_blocks) == ("V1", 784, 1504)


def test_0_25_1_with_fp8_weights_and_an_fp8_kv_cache(fixtures: Path) -> None:
    metrics = with_pool((fixtures / "vllm-0.25.1-h200.metrics").read_text(), 1_681_344, LENGTH)
    startup = read_startup((fixtures / "vllm-0.25.1-h200-qwen3-8b-fp8.log").read_text(), metrics)
    assert parts(startup) == (8.83, 1.32, 0.22, 0.55, 115.45)
    assert (startup.quantization, startup.kv_cache_dtype) == ("fp8", "fp8")
    assert "Selected CutlassFP8ScaledMMLinearKernel for Fp8PerTensorOnlineLinearMethod" in startup.kernels


def test_bytes_per_token_are_those_of_the_architecture(dense: str, dense_metrics: str) -> None:
    # 36 layers, K and V, 8 heads of 128, two bytes
    assert read_startup(dense, dense_metrics).kv_bytes_per_token == pytest.approx(
        36 * 2 * 8 * 128 * 2, rel=1e-4
    )


def test_a_cpu_server_holds_its_checkpoints_bytes_and_leaves_out_the_runtime(
    cpu_log: str, cpu_metrics: str
) -> None:
    startup = read_startup(cpu_log, cpu_metrics, stored_gib=0.2506)
    assert (startup.weights_gib, startup.kv_cache_gib, startup.other_gib) == (0.2506, 1.0, 0.0)
    assert (startup.leaves_out, startup.device, startup.release) == ("runtime", "cpu", "0.32.0")
    assert (startup.peak_activation_gib, startup.non_torch_gib) == (None, None)
    # 30 layers, K and V, 3 heads of 64, two bytes; the pool's last part of a block is lost
    assert startup.kv_bytes_per_token == pytest.approx(30 * 2 * 3 * 64 * 2, rel=1e-3)
    assert startup.kv_block_bytes == pytest.approx(128 * 23040, rel=1e-3)


def test_a_quantized_cpu_server_names_its_kernel(fixtures: Path, cpu_metrics: str) -> None:
    log = (fixtures / "vllm-0.32.0-cpu-smollm2-w8a8.log").read_text()
    startup = read_startup(log, cpu_metrics, stored_gib=0.15)
    assert startup.kernels == ("Selected CPUInt8ScaledMMLinearKernel for CompressedTensorsW8A8Int8",)
    assert startup.quantization == "compressed-tensors"


def test_a_cpu_server_without_its_checkpoints_bytes_has_no_account(cpu_log: str, cpu_metrics: str) -> None:
    with pytest.raises(EngineError, match="prints no account of its weights"):
        read_startup(cpu_log, cpu_metrics)


def test_the_record_has_the_examples_keys(dense: str, dense_metrics: str) -> None:
    example = {
        *("cuda_graph_gib", "engine_init_seconds", "kv_bytes_per_token", "kv_cache_dtype", "kv_cache_gib"),
        *("kv_cache_tokens", "load_seconds", "max_concurrency", "speculative_config", "vllm_version"),
        "weights_gib",
    }
    record = json.loads(read_startup(dense, dense_metrics).model_dump_json())
    assert example <= set(record)
    assert set(record["max_concurrency"]) == {"sequences", "tokens_per_request"}
    assert record["speculative_config"] == "None"


# ---- other releases


@pytest.mark.parametrize(
    "release", ["0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"]
)
def test_every_release_gives_the_same_amounts_with_graphs_counted_once(
    hybrid: str, hybrid_metrics: str, release: str
) -> None:
    startup = read_startup(reword(hybrid, release), hybrid_metrics)
    assert parts(startup) == pytest.approx((50.22, 2.58, 0.25, 0.91, 72.01))
    assert startup.release == release


@pytest.mark.parametrize("release", ["0.26.0", "0.27.1", "0.28.0", "0.33.0"])
def test_without_a_pool_line_nothing_is_taken_out(dense: str, dense_metrics: str, release: str) -> None:
    assert parts(read_startup(reword(dense, release), dense_metrics)) == pytest.approx(
        (15.27, 0.78, 0.22, 0.60, 109.55)
    )


def test_an_estimate_that_was_not_applied_is_not_taken_out(hybrid: str, hybrid_metrics: str) -> None:
    log = reword(hybrid, "0.30.0").replace("3.33 GiB for peak activation", "2.58 GiB for peak activation")
    log = log.replace("Available KV cache memory: 72.01", "Available KV cache memory: 72.77")
    log += "\nCUDA graph profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it, ..."
    assert read_startup(log, hybrid_metrics).peak_activation_gib == pytest.approx(2.58)


def test_other_devices_and_pools_are_read_from_0_30_on(hybrid: str, hybrid_metrics: str) -> None:
    log = reword(hybrid, "0.33.0").replace("GPU KV cache size", "GPU + host KV cache size")
    startup = read_startup(log, hybrid_metrics)
    assert startup.kv_cache_tokens == 1_095_179
    assert startup.offload == ("KV: pool in GPU + host memory",)


@pytest.mark.parametrize("version", ["0.24.0", "0.34.0", "1.0.0", "0.1.dev18498+g7a33ba95f", "local"])
def test_an_unknown_release_is_named(dense: str, dense_metrics: str, version: str) -> None:
    with pytest.raises(EngineError, match="release are not known") as caught:
        read_startup(dense.replace("(v0.25.1)", f"(v{version})"), dense_metrics)
    assert caught.value.found == version


def test_the_rules_development_version_is_read_as_its_release(dense: str, dense_metrics: str) -> None:
    package = "0.1.dev18498+g7a33ba95f"
    log = dense.replace("(v0.25.1)", f"(v{package})")
    startup = read_startup(log, dense_metrics, aliases={package: "0.25.1"})
    assert (startup.vllm_version, startup.release) == (package, "0.25.1")


# ---- tensor parallelism


def tensor_parallel(log: str, ranks: int) -> str:
    return log.replace("tensor_parallel_size=1", f"tensor_parallel_size={ranks}")


def test_a_real_log_of_two_ranks_is_their_sum(fixtures: Path) -> None:
    log = (fixtures / "vllm-0.25.1-h200-qwen3-8b-tp2.log").read_text()
    metrics = with_pool((fixtures / "vllm-0.25.1-h200.metrics").read_text(), 1_704_176, LENGTH)
    startup = read_startup(log, metrics)
    assert parts(startup) == pytest.approx((2 * 7.64, 2 * 0.63, 2 * 0.54, 0.0, 2 * 117.02))  # no graphs
    assert (startup.tensor_parallel, startup.runner, startup.kv_cache_tokens) == (2, "V2", 1_704_176)


def test_amounts_that_every_rank_prints_are_added(dense: str, dense_metrics: str) -> None:
    startup = read_startup(tensor_parallel(dense, 2) + "\n" + of_rank(dense, 1), dense_metrics)
    assert parts(startup) == pytest.approx((30.54, 1.56, 0.44, 1.20, 219.10))
    assert startup.tensor_parallel == 2


def test_amounts_that_the_first_rank_alone_prints_are_multiplied(hybrid: str, hybrid_metrics: str) -> None:
    log = tensor_parallel(hybrid, 4)
    startup = read_startup(log, hybrid_metrics)
    assert startup.weights_gib == pytest.approx(4 * 50.22)
    assert startup.kv_bytes_per_token == pytest.approx(4 * 72.01 * 2**30 / 1_095_179)


def test_a_rank_that_did_not_report_is_an_error(dense: str, dense_metrics: str) -> None:
    with pytest.raises(EngineError, match="nor one a rank") as caught:
        read_startup(tensor_parallel(dense, 4) + "\n" + of_rank(dense, 1), dense_metrics)
    assert caught.value.found == "2 lines"


def test_a_pipeline_is_refused(dense: str, dense_metrics: str) -> None:
    with pytest.raises(EngineError, match="pipeline_parallel_size"):
        read_startup(dense.replace("pipeline_parallel_size=1", "pipeline_parallel_size=2"), dense_metrics)


# ---- what is missing or wrong


@pytest.mark.parametrize(
    ("line", "wording"),
    [
        ("Initializing a V1 LLM engine", "Initializing a V1 LLM engine"),
        ("Model loading took", "Model loading took"),
        ("Available KV cache memory", "Available KV cache memory"),
        ("GPU KV cache size", "GPU KV cache size"),
        ("Maximum concurrency", "Maximum concurrency"),
        ("Actual usage is", "Actual usage is"),
        ("init engine", "init engine"),
    ],
)
def test_a_missing_line_is_named_and_never_a_zero(
    dense: str, dense_metrics: str, line: str, wording: str
) -> None:
    log = "\n".join(text for text in dense.splitlines() if line not in text)
    with pytest.raises(EngineError, match="lacks a line") as caught:
        read_startup(log, dense_metrics)
    assert wording in str(caught.value.expected)


@pytest.mark.parametrize("line", ["Loading weights took", "CPU KV cache size", "init engine"])
def test_a_missing_line_of_a_cpu_server_is_named_too(cpu_log: str, cpu_metrics: str, line: str) -> None:
    log = "\n".join(text for text in cpu_log.splitlines() if line not in text)
    assert log != cpu_log
    with pytest.raises(EngineError, match="lacks a line") as caught:
        read_startup(log, cpu_metrics, stored_gib=0.25)
    assert line.removeprefix("CPU ") in str(caught.value.expected)


@pytest.mark.parametrize(
    "label",
    [
        "kv_cache_memory_bytes",
        "kv_cache_size_tokens",
        "kv_cache_max_concurrency",
        "num_gpu_blocks",
        "block_size",
    ],
)
def test_a_missing_label_of_the_metrics_is_named_and_never_a_zero(
    cpu_log: str, cpu_metrics: str, label: str
) -> None:
    with pytest.raises(EngineError) as caught:
        read_startup(cpu_log, cpu_metrics.replace(f'{label}="', f'other_{label}="'), stored_gib=0.25)
    assert label in str(caught.value)


def test_a_log_at_info_level_lacks_the_accounts_of_0_25(dense: str, dense_metrics: str) -> None:
    log = "\n".join(text for text in dense.splitlines() if " DEBUG " not in text)
    with pytest.raises(EngineError, match="VLLM_LOGGING_LEVEL=DEBUG"):
        read_startup(log, dense_metrics)


def test_a_negative_amount_is_refused(dense: str, dense_metrics: str) -> None:
    log = dense.replace("0.22 GiB for non-torch memory", "-0.22 GiB for non-torch memory")
    with pytest.raises(EngineError, match="not an amount"):
        read_startup(log, dense_metrics)


def test_an_estimate_above_the_activation_is_refused(hybrid: str, hybrid_metrics: str) -> None:
    log = reword(hybrid, "0.28.0").replace("0.75 GiB (estimated)", "3.75 GiB (estimated)")
    with pytest.raises(EngineError, match="an account is negative") as caught:
        read_startup(log, hybrid_metrics)
    assert caught.value.where == "start-up log: peak activation"


def test_a_profile_that_does_not_add_up_is_tried_again(dense: str, dense_metrics: str) -> None:
    log = dense.replace("Available KV cache memory: 109.55", "Available KV cache memory: 89.55")
    with pytest.raises(PodError, match="does not add up") as caught:
        read_startup(log, dense_metrics)
    assert caught.value.retryable


def test_log_and_metrics_must_agree_on_the_pool(dense: str, fixtures: Path) -> None:
    # metrics of another start of the same server
    with pytest.raises(EngineError, match="disagree") as caught:
        read_startup(dense, (fixtures / "vllm-0.25.1-h200.metrics").read_text())
    assert caught.value.found == 794_016
    assert "kv_cache_size_tokens" in caught.value.where


def test_a_start_up_plan_leaves_no_accounts(dense: str, dense_metrics: str) -> None:
    log = "\n".join(text for text in dense.splitlines() if "Actual usage" not in text)
    log += "\nApplying persisted startup plan (fingerprint x): kv_cache_memory_bytes=1 (0.00 GiB)"
    with pytest.raises(EngineError, match="lacks a line"):
        read_startup(log, dense_metrics)


def test_pools_are_told_with_the_release_they_are_of(dense: str, dense_metrics: str) -> None:
    startup = read_startup(reword(dense, "0.30.0"), dense_metrics)
    assert (startup.vllm_version, startup.release) == ("0.30.0", "0.30.0")


OTHERS = {
    "llama.cpp": """main: loading model
load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  4156.00 MiB
main: server is listening on http://127.0.0.1:8080 - starting the main loop""",
    "SGLang": """[2026-11-30 10:00:00] server_args=ServerArgs(model_path='/model', mem_fraction_static=0.85)
[2026-11-30 10:00:20] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=120.11 GB
[2026-11-30 10:00:21] KV Cache is allocated. #tokens: 700000, K size: 48.07 GB, V size: 48.07 GB
[2026-11-30 10:00:40] The server is fired up and ready to roll!""",
}
"""Start-up logs as these servers print them, shortened."""


def test_a_vllm_server_keeps_accounts(dense: str, cpu_log: str) -> None:
    assert keeps_accounts(dense)
    assert keeps_accounts(cpu_log)


@pytest.mark.parametrize("server", OTHERS)
def test_the_peaks_of_other_servers_are_the_devices_count(server: str) -> None:
    assert not keeps_accounts(OTHERS[server])
    assert offload_findings(OTHERS[server]) == ()
    workload = next(iter(load_rules().workloads.values()))
    run = WorkloadRun.model_construct(name="serve", kv_usage=None)
    peak = peak_memory(None, run, workload, device_peak_gib=21.5)
    assert (peak.peak_gib, peak.device_peak_gib, peak.weights_gib) == (21.5, 21.5, None)
    with pytest.raises(InfraError, match="keeps no accounts and the device was not asked"):
        peak_memory(None, run, workload)
