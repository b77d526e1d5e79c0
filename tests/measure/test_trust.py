"""Runs that are too good: each is refused, and what is honest is not."""

import pytest
from loads import time_workload, workload
from served import Served
from test_peak_memory import run

from lowbit_ray.errors import EngineAnswerError, InfraError
from lowbit_ray.measure.runs import Percentiles, WorkloadRun
from lowbit_ray.measure.trust import check_run, withheld_tokens

ALONE = workload(metric="median_tpot_ms", better="lower", max_concurrency=1, num_prompts=2)


def test_prefix_cache_hits_in_the_timed_window_fail_the_run(anchor: Served) -> None:
    anchor.tell(faults={"prefix_hits": 16})
    with pytest.raises(
        EngineAnswerError, match="prefix cache, though none was sent before, found 128 tokens"
    ):
        time_workload(anchor.endpoint)


def test_a_gauge_of_zero_under_load_fails_the_run(anchor: Served) -> None:
    anchor.tell(tokens_per_s=100, faults={"zero_gauge": True})
    with pytest.raises(EngineAnswerError, match="KV gauge reads 0"):
        time_workload(anchor.endpoint)


def test_tokens_sent_in_a_burst_fail_a_workload_scored_by_time_per_token(anchor: Served) -> None:
    anchor.tell(tokens_per_s=20, faults={"burst": True})
    with pytest.raises(EngineAnswerError, match="withheld and sent in a burst"):
        time_workload(anchor.endpoint, ALONE)


def test_the_share_of_decoding_is_what_gives_a_burst_away() -> None:
    check_run(run(0.5).model_copy(update={"decode_share": 0.21}), ALONE, cpu_share_limit=0.9)
    with pytest.raises(EngineAnswerError, match=r"withheld and sent in a burst, found 0\.190"):
        check_run(run(0.5).model_copy(update={"decode_share": 0.19}), ALONE, cpu_share_limit=0.9)
    check_run(run(0.5).model_copy(update={"decode_share": 0.19}), workload(), cpu_share_limit=0.9)


def test_no_time_per_token_at_all_is_the_engines_fault_or_the_clients() -> None:
    at_once = run(0.5).model_copy(update={"median_tpot_ms": 0.0})
    check_run(at_once, workload(), cpu_share_limit=0.9)
    with pytest.raises(EngineAnswerError, match="time per output token cannot be true"):
        check_run(at_once.model_copy(update={"client_lag_ms": 3.0}), ALONE, cpu_share_limit=0.9)
    with pytest.raises(InfraError, match="load client got no CPU, found woke 90 ms late"):
        check_run(at_once.model_copy(update={"client_lag_ms": 90.0}), ALONE, cpu_share_limit=0.9)
    assert "come at once" in str(withheld_tokens(at_once, run(0.5), 1.25))


def timed(tpot_ms: float, ttft_ms: float) -> WorkloadRun:
    """One user, 256 tokens."""
    whole = ttft_ms + 255 * tpot_ms
    flat = Percentiles(mean=whole, p50=whole, p90=whole, p95=whole, p99=whole, max=whole)
    return run(0.5).model_copy(update={"median_tpot_ms": tpot_ms, "e2e_ms": flat})


def test_first_tokens_held_back_show_against_the_anchor() -> None:
    """Half the answer is made before the first token is sent: half the time per token, the same whole."""
    reason = withheld_tokens(timed(2.6, 30 + 128 * 5.2), timed(5.2, 30), 1.25)
    assert reason is not None
    assert "time per token is 2.00 times better than BF16's, whole answers 1.00 times" in reason


@pytest.mark.parametrize("tpot_ms", [1.3, 3.84, 5.2, 9.0])
def test_an_honest_gain_is_believed_even_with_a_slower_prefill(tpot_ms: float) -> None:
    assert withheld_tokens(timed(tpot_ms, 60), timed(5.2, 30), 1.25) is None
