"""The length that a capped server is started with: engines compile anew for every other one."""

from pathlib import Path
from typing import cast

import pytest

from lowbit_ray.engines.accounts import Startup, read_startup
from lowbit_ray.engines.pod import Pod
from lowbit_ray.measure.memory import PeakMemory
from lowbit_ray.rules import load_rules
from lowbit_ray.stages.capped import cap_of
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide
from lowbit_ray.tasks import load_task

TOKENS = {"serve": 32 * 8704, "interactive": 1280, "long_context": 48 * 16256}
"""What the workloads of an 8B model hold in the pool at once."""


class SomePod:
    """A pod's facts are all that is asked of it."""

    class facts:  # noqa: N801
        total_gib = 139.8


@pytest.fixture
def startup(fixtures: Path) -> Startup:
    log = (fixtures / "vllm-0.25.1-h200-qwen3-8b-bf16.log").read_text()
    metrics = (fixtures / "vllm-0.25.1-h200.metrics").read_text()
    # another start of the same server, whose pool came out 0.5 % smaller
    for old, new in (("794016", "797680"), ("49626", "49855"), ("24.2314453125", "24.34")):
        metrics = metrics.replace(old, new)
    return read_startup(log, metrics)


def cap_length(startup: Startup | None, name: str) -> int | None:
    peaks = {}
    for workload, tokens in TOKENS.items():
        weights, other, each = (
            (15.3, 1.6, 147_456)
            if startup is None
            else (
                startup.weights_gib,
                startup.other_gib,
                startup.kv_bytes_per_token,
            )
        )
        kv = tokens * each / 2**30
        peaks[workload] = PeakMemory(
            device_peak_gib=None,
            kv_bytes_per_token=None,
            kv_gib=kv,
            kv_usage=0.5,
            other_gib=other,
            peak_gib=weights + kv + other,
            weights_gib=weights,
        )
    timed = TimedSide.model_construct(
        start_seconds=1.0, startup=startup, runs={}, outputs={}, peaks=peaks, start_log=""
    )
    evaluation = Evaluation(
        task=load_task("qwen3-8b"),
        rules=load_rules(),
        **dict.fromkeys(("submission", "ledger", "settings", "tenure", "watch")),  # type: ignore[arg-type]
    )
    return cap_of(evaluation, cast("Pod", SomePod()), timed, name).max_model_len


@pytest.mark.parametrize("name", ["serve", "long_context"])
def test_a_cap_that_holds_a_whole_request_keeps_the_length_that_is_compiled(
    startup: Startup, name: str
) -> None:
    assert cap_length(startup, name) is None


def test_a_cap_that_holds_less_is_served_with_the_workloads_own_length(startup: Startup) -> None:
    assert cap_length(startup, "interactive") == 1024 + 256


def test_an_engine_without_accounts_is_told_the_workloads_own_length() -> None:
    assert cap_length(None, "serve") == 8192 + 512


def test_under_the_largest_cap_all_that_is_asked_fits() -> None:
    """Quality is asked there too; without accounts a peak is the device's, the same for every workload."""
    assert (
        cap_length(None, "long_context") == 16000 + 512 + 128
    )  # a retrieval item, its question and its answer
