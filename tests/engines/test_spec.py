"""Commands and environments, as plain data."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.isolation import Enclosure
from lowbit_ray.engines.spec import EngineSpec, launch_spec, vllm_spec
from lowbit_ray.errors import ConfigError
from lowbit_ray.rules import load_rules
from lowbit_ray.tasks import Task, load_task

MODEL, CACHE = Path("/models/x"), Path("/cache/s1")
SERVE = ("vllm", "serve")
CAP = Cap(budget_gib=28.25, cap_gib=32.25, total_gib=141.25, max_model_len=8704)


def gpu_spec(cap: Cap | None = None, *, tensor_parallel: int = 1, flashinfer: bool = False) -> EngineSpec:
    return vllm_spec(
        MODEL,
        task=load_task("qwen3-8b"),
        rules=load_rules(),
        vllm_command=SERVE,
        cap=cap,
        max_logprobs=100,
        cache_dir=CACHE,
        tensor_parallel=tensor_parallel,
        gpus=tuple(str(index) for index in range(tensor_parallel)),
        flashinfer=flashinfer,
    )


def cpu_spec(
    cap: Cap | None = None, task: Task | None = None, tokenizer_dir: Path | None = None
) -> EngineSpec:
    return vllm_spec(
        MODEL,
        task=task or load_task("smollm2-135m"),
        rules=load_rules(),
        vllm_command=("python", "-m", "vllm.entrypoints.openai.api_server"),
        cap=cap,
        max_logprobs=100,
        cache_dir=CACHE,
        tensor_parallel=0,
        tokenizer_dir=tokenizer_dir,
    )


def flag(spec: EngineSpec, name: str) -> str:
    return spec.command[spec.command.index(name) + 1]


# ---- our vLLM on GPUs


def test_the_rules_flags_are_vllms_flags() -> None:
    spec = gpu_spec()
    assert spec.command[:3] == ("vllm", "serve", "/models/x")
    assert flag(spec, "--max-model-len") == "32768"
    assert flag(spec, "--gpu-memory-utilization") == "0.9000"
    assert flag(spec, "--max-num-seqs") == "256"
    assert flag(spec, "--max-num-batched-tokens") == "8192"
    assert flag(spec, "--seed") == "0"
    assert "--no-enable-prefix-caching" in spec.command


def test_a_candidate_is_served_with_the_sources_tokenizer() -> None:
    spec = cpu_spec(tokenizer_dir=Path("/models/source"))
    assert flag(spec, "--tokenizer") == "/models/source"
    assert "--tokenizer" not in cpu_spec().command
    assert "--tokenizer" not in gpu_spec().command


def test_there_is_one_api_server() -> None:
    assert flag(gpu_spec(), "--api-server-count") == "1"


def test_a_cap_is_told_as_the_budgets_share() -> None:
    spec = gpu_spec(CAP)
    assert flag(spec, "--gpu-memory-utilization") == "0.2000"
    assert flag(spec, "--max-model-len") == "8704"


def test_a_cap_never_lengthens_the_context() -> None:
    assert flag(gpu_spec(CAP.model_copy(update={"max_model_len": 10**6})), "--max-model-len") == "32768"


def test_the_accounts_of_0_25_need_the_debug_level() -> None:
    assert gpu_spec().environment["VLLM_LOGGING_LEVEL"] == "DEBUG"


@pytest.mark.parametrize(("installed", "value"), [(False, "0"), (True, None)])
def test_flashinfers_sampler_is_off_where_it_is_not_installed(installed: bool, value: str | None) -> None:
    assert gpu_spec(flashinfer=installed).environment.get("VLLM_USE_FLASHINFER_SAMPLER") == value


@pytest.mark.parametrize(("ranks", "backend"), [(1, "uni"), (4, "mp")])
def test_the_executor_is_never_rays(ranks: int, backend: str) -> None:
    spec = gpu_spec(tensor_parallel=ranks)
    assert flag(spec, "--distributed-executor-backend") == backend
    assert flag(spec, "--tensor-parallel-size") == str(ranks)
    assert spec.environment["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, range(ranks)))


def test_a_wrong_number_of_gpus_is_refused() -> None:
    with pytest.raises(ConfigError, match="as many GPUs"):
        vllm_spec(
            MODEL,
            task=load_task("qwen3-8b"),
            rules=load_rules(),
            vllm_command=SERVE,
            cap=None,
            max_logprobs=20,
            cache_dir=CACHE,
            tensor_parallel=2,
            gpus=("0",),
        )


def test_compile_caches_and_home_lie_in_the_cache_folder() -> None:
    environment = gpu_spec().environment
    for name in ("HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "HF_HOME"):
        assert Path(environment[name]).is_relative_to(CACHE)


# ---- our vLLM on a CPU


def test_the_tasks_flags_override_the_rules() -> None:
    spec = cpu_spec()
    assert flag(spec, "--model") == "/models/x"
    assert flag(spec, "--max-model-len") == "2048"
    assert flag(spec, "--max-num-seqs") == "16"
    assert "--enforce-eager" in spec.command
    assert "--gpu-memory-utilization" not in spec.command


def test_the_cpus_pool_is_exact_bytes_by_flag_and_not_by_variable() -> None:
    spec = cpu_spec()
    assert flag(spec, "--kv-cache-memory-bytes") == str(2**30)
    assert "VLLM_CPU_KVCACHE_SPACE" not in spec.environment
    assert spec.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_the_cpus_cap_is_the_pool() -> None:
    cap = Cap(budget_gib=0.5, cap_gib=4.5, total_gib=23, weights_gib=0.25)
    assert flag(cpu_spec(cap), "--kv-cache-memory-bytes") == str(2**28)


def test_the_cpus_threads_are_the_pods() -> None:
    assert cpu_spec().environment["OMP_NUM_THREADS"] == "2"


def test_on_a_cpu_no_worker_process_competes_with_the_model() -> None:
    assert flag(cpu_spec(), "--distributed-executor-backend") == "uni"
    assert cpu_spec().environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_a_pool_that_is_no_number_is_named() -> None:
    task = load_task("smollm2-135m")
    plan = task.engine.model_copy(update={"environment": {"VLLM_CPU_KVCACHE_SPACE": "lots"}})
    with pytest.raises(ConfigError, match="VLLM_CPU_KVCACHE_SPACE"):
        cpu_spec(task=task.model_copy(update={"engine": plan}))


# ---- a participant's launch.sh


def launch(cap: Cap | None = None) -> EngineSpec:
    return launch_spec(
        Path("/source"),
        MODEL,
        task=load_task("qwen3-8b"),
        rules=load_rules(),
        cap=cap,
        device_total_gib=141.25,
        cache_dir=CACHE,
        gpus=("GPU-1",),
    )


def test_a_launch_script_is_told_where_and_how_much() -> None:
    environment = launch().environment
    assert launch().command == ("bash", "/source/launch.sh", "serve")
    assert environment["LOWBIT_MODEL_DIR"] == "/models/x"
    assert environment["LOWBIT_MAX_MODEL_LEN"] == "32768"
    assert environment["LOWBIT_GPU_MEMORY_UTILIZATION"] == "0.9000"
    assert environment["LOWBIT_GPU_MEMORY_GIB"] == "127.125"
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert launch().environment_for(20123, {})["LOWBIT_PORT"] == "20123"


def test_under_a_cap_a_launch_script_is_told_the_budget_both_ways() -> None:
    environment = launch(CAP).environment
    assert environment["LOWBIT_GPU_MEMORY_GIB"] == "28.250"
    assert environment["LOWBIT_GPU_MEMORY_UTILIZATION"] == "0.2000"


def test_on_a_cpu_a_launch_script_is_told_of_the_tasks_share_of_the_host() -> None:
    spec = launch_spec(
        Path("/source"),
        MODEL,
        task=load_task("smollm2-135m"),
        rules=load_rules(),
        cap=None,
        device_total_gib=512.0,
        cache_dir=CACHE,
    )
    assert spec.environment["LOWBIT_GPU_MEMORY_GIB"] == "5.400"  # 0.9 of 6


def test_a_launch_scripts_python_is_that_of_our_engine() -> None:
    fields = {"task": load_task("qwen3-8b"), "rules": load_rules(), "cap": None, "device_total_gib": 141.25}
    spec = launch_spec(Path("/source"), MODEL, cache_dir=CACHE, python=Path("/opt/vllm/bin/python"), **fields)
    assert spec.environment["PATH"].startswith("/opt/vllm/bin:")


def test_a_sandbox_is_shown_the_devices_of_the_pod_where_it_is_started() -> None:
    enclosure = Enclosure(foreign=True, required=True, cache_dir=CACHE, memory_gib=1, processes=64)
    spec = launch().model_copy(update={"enclosure": enclosure})
    files = [Path("/dev/nvidia3"), Path("/dev/nvidiactl"), Path("/dev/nvidia5"), Path("/dev/nvidiactl")]
    shown = spec.with_devices(files).enclosure
    assert shown is not None
    assert shown.devices == (Path("/dev/nvidia3"), Path("/dev/nvidiactl"), Path("/dev/nvidia5"))
    assert launch().with_devices(files).enclosure is None


def test_a_launch_script_inherits_no_python_path() -> None:
    host = {"PYTHONPATH": "/ours", "PATH": "/bin", "SECRET_KEY": "x", "RAY_ADDRESS": "x", "HF_TOKEN": "x"}
    assert set(launch().environment_for(20000, host)) & set(host) == {"PATH"}


# ---- all


@pytest.mark.parametrize(
    "name",
    [
        *("RAY_ADDRESS", "AWS_ACCESS_KEY_ID", "HF_TOKEN", "MY_SECRET", "DB_PASSWORD", "OPENAI_API_KEY"),
        *("GITHUB_TOKEN", "LOWBIT_LEDGER", "VLLM_ENABLE_STARTUP_PLAN", "VLLM_SERVER_DEV_MODE"),
    ],
)
def test_a_forbidden_variable_is_refused_by_name(name: str) -> None:
    task = load_task("smollm2-135m")
    plan = task.engine.model_copy(update={"environment": {name: "1"}})
    with pytest.raises(ConfigError, match=name):
        cpu_spec(task=task.model_copy(update={"engine": plan}))


@pytest.mark.parametrize("spec", [gpu_spec(), cpu_spec(), launch()], ids=["gpu", "cpu", "launch"])
def test_no_engine_phones_home(spec: EngineSpec) -> None:
    assert spec.environment["HF_HUB_OFFLINE"] == "1"
    assert spec.environment["VLLM_NO_USAGE_STATS"] == "1"
    assert spec.environment["DO_NOT_TRACK"] == "1"


@pytest.mark.parametrize("spec", [gpu_spec(CAP), cpu_spec(), launch()], ids=["gpu", "cpu", "launch"])
def test_a_spec_travels(spec: EngineSpec) -> None:
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert EngineSpec.model_validate_json(spec.model_dump_json()) == spec


def test_only_a_whole_argument_is_the_port() -> None:
    spec = gpu_spec().model_copy(update={"command": ("x", "{port}", '{"port": "{port}"}')})
    assert spec.command_for(20001) == ["x", "20001", '{"port": "{port}"}']
