"""Hard caps, in numbers."""

from __future__ import annotations

import pytest

from lowbit_ray.engines.cap import Cap
from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.budget import budget_of
from lowbit_ray.rules import load_rules

GIB = 2**30


@pytest.mark.parametrize(
    ("peak", "budget", "cap"), [(8.763, 8.938, 12.938), (79.582, 81.174, 85.174), (27.696, 28.250, 32.250)]
)
def test_budgets_and_caps_are_the_examples(peak: float, budget: float, cap: float) -> None:
    made = Cap.of_peak(peak, rules=load_rules(), total_gib=139.8)
    two = Cap.of_peak(peak, rules=load_rules(), total_gib=279.6, devices=2)
    assert two.cap_gib - made.cap_gib == pytest.approx(4)
    assert (made.budget_gib, made.cap_gib) == pytest.approx((budget, cap), abs=6e-4)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_cap_and_the_budget_that_it_is_judged_by_are_one(devices: int) -> None:
    rules = load_rules()
    engine = rules.engine.model_copy(update={"budget_factor": 1.1, "context_gib": 3.0})
    cap = Cap.of_peak(
        40, rules=rules.model_copy(update={"engine": engine}), total_gib=139.8 * devices, devices=devices
    )
    assert (cap.budget_gib, cap.cap_gib) == pytest.approx((44, 44 + 3 * devices))
    budget = budget_of(40, engine, devices)
    assert (cap.budget_gib, cap.cap_gib) == (budget.budget_gib, budget.cap_gib)


def test_vllm_is_told_the_budget_not_the_cap() -> None:
    assert Cap(budget_gib=34.4, cap_gib=38.4, total_gib=139.8).utilization == pytest.approx(0.2461, abs=5e-5)


def test_a_budget_beyond_the_device_asks_for_all_of_it() -> None:
    assert Cap(budget_gib=200, cap_gib=204, total_gib=139.8).utilization == 1.0


def test_on_a_cpu_the_pool_is_what_the_weights_leave_in_whole_blocks_and_the_null_block() -> None:
    block = 128 * 23040
    cap = Cap(budget_gib=0.26, cap_gib=4.26, total_gib=23, weights_gib=0.2506, kv_block_bytes=block)
    room = (0.26 - 0.2506) * GIB
    assert cap.kv_pool_bytes == (room // block + 2) * block


def test_a_workload_that_held_n_blocks_may_hold_n_blocks_again() -> None:
    block = 128 * 23040
    for held in range(1, 40):
        peak = 0.2506 + held * block / GIB
        cap = Cap.of_peak(peak, rules=load_rules(), total_gib=23, weights_gib=0.2506, kv_block_bytes=block)
        assert cap.kv_pool_bytes // block - 1 >= held  # one block is never handed out


def test_without_a_block_size_the_pool_is_exact_bytes() -> None:
    assert Cap(budget_gib=2, cap_gib=6, total_gib=23, weights_gib=1).kv_pool_bytes == GIB


def test_a_budget_below_the_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves nothing for the KV cache"):
        _ = Cap(budget_gib=1, cap_gib=5, total_gib=23, weights_gib=1).kv_pool_bytes


def test_on_a_cpu_the_weights_must_be_known() -> None:
    with pytest.raises(ConfigError, match="weights"):
        _ = Cap(budget_gib=1, cap_gib=5, total_gib=23).kv_pool_bytes
