"""Timed workloads on an engine whose pace, pool and counts are known."""

import urllib.request

import pytest
from loads import prompts, time_workload, workload
from served import Served

from lowbit_ray.errors import ConfigError, EngineAnswerError, InfraError
from lowbit_ray.measure.workload import WarmUp, efficiency, speed_standard_error


def test_time_per_token_is_the_engines_own(anchor: Served) -> None:
    """The engine makes a token every 20 ms: the client may see them late, never early."""
    anchor.tell(tokens_per_s=50)
    timed = time_workload(anchor.endpoint)
    spans = sorted((row.last_s - row.first_s) / 7 for row in timed.rows)
    assert timed.run.median_tpot_ms == pytest.approx(1000 * (spans[3] + spans[4]) / 2)
    assert timed.run.median_tpot_ms > 17


def test_throughput_is_tokens_over_wall_time(anchor: Served) -> None:
    """Four in flight at 50 tokens a second, in two rounds of 0.16 s."""
    anchor.tell(tokens_per_s=50)
    run = time_workload(anchor.endpoint).run
    assert run.output_throughput == pytest.approx(8 * 8 / run.wall_s)
    assert run.wall_s > 0.31


def test_prefill_is_in_the_time_to_first_token(anchor: Served) -> None:
    """16 prompt tokens at 160 a second."""
    anchor.tell(prefill_tokens_per_s=160)
    run = time_workload(anchor.endpoint).run
    assert run.ttft_ms.p50 > 100
    assert run.e2e_ms.p50 > run.ttft_ms.p50


def test_realised_lengths_are_published(anchor: Served) -> None:
    run = time_workload(anchor.endpoint).run
    assert (run.requests, run.mean_input_len, run.mean_output_len) == (8, 16, 8)


def test_the_pool_is_full_as_the_running_requests_make_it(anchor: Served) -> None:
    """Four requests hold 24 tokens each, in blocks of 16; the pool's size is the engine's own."""
    anchor.tell(tokens_per_s=100, kv_bytes_per_token=2**20)
    run = time_workload(anchor.endpoint).run
    assert run.running == 4
    assert run.kv_usage == pytest.approx(4 * 32 / pool_tokens(anchor), rel=1e-3)


def pool_tokens(served: Served) -> int:
    with urllib.request.urlopen(served.endpoint.route("/metrics"), timeout=5) as page:
        text = page.read().decode()
    return int(text.split('kv_cache_size_tokens="')[1].split('"')[0])


def pool_bytes(served: Served) -> int:
    served.tell(kv_bytes_per_token=1024)
    return 1024 * pool_tokens(served)


def test_a_full_pool_makes_requests_wait_and_the_wait_is_shown(anchor: Served) -> None:
    """A pool of two requests for four in flight."""
    anchor.tell(tokens_per_s=100, kv_bytes_per_token=pool_bytes(anchor) // 64)
    run = time_workload(anchor.endpoint).run
    assert run.running == 2
    assert run.mean_queue_ms is not None
    assert run.mean_queue_ms > 40
    assert run.ttft_ms.p50 > 40


def test_outputs_are_kept_for_the_audit(anchor: Served) -> None:
    timed = time_workload(anchor.endpoint)
    for output in timed.outputs:
        assert output.token_ids == tuple(anchor.bigram.greedy(output.prompt[-1], 8, forbid=[256]))
        assert output.text.encode() == bytes(output.token_ids)


def test_an_engine_without_metrics_has_no_usage(anchor: Served) -> None:
    anchor.tell(faults={"no_metrics": True})
    run = time_workload(anchor.endpoint).run
    assert (run.kv_usage, run.running, run.prefix_cache_hits) == (None, None, None)


def test_warm_up_ends_when_two_passes_agree(anchor: Served) -> None:
    others = prompts(8, seed=9)
    run = time_workload(anchor.endpoint, warm_up=WarmUp(others, max_passes=6, agreement=0.9)).run
    assert (run.warm_up_passes, run.warm_up_agreed) == (2, True)


def test_a_run_without_warm_up_says_so(anchor: Served) -> None:
    run = time_workload(anchor.endpoint, warm_up=None).run
    assert (run.warm_up_passes, run.warm_up_agreed) == (0, None)


def test_progress_says_what_the_tokens_are_of(anchor: Served) -> None:
    told: list[tuple[str, int, int]] = []
    others = WarmUp(prompts(4, seed=9), max_passes=2, agreement=-1)
    time_workload(
        anchor.endpoint, warm_up=others, progress=lambda done, total, doing: told.append((doing, done, total))
    )
    assert list(dict.fromkeys(doing for doing, _, _ in told)) == [
        "warm-up pass 1, token",
        "warm-up pass 2, token",
        "4 requests at once, token",
    ]
    assert told[0][1:] == (0, 32)
    assert told[-1] == ("4 requests at once, token", 64, 64)


def test_warm_up_ends_after_its_last_pass(anchor: Served) -> None:
    others = prompts(8, seed=9)
    run = time_workload(anchor.endpoint, warm_up=WarmUp(others, max_passes=3, agreement=-1)).run
    assert (run.warm_up_passes, run.warm_up_agreed) == (3, False)


def test_prompts_of_another_shape_are_refused(anchor: Served) -> None:
    with pytest.raises(ValueError, match="takes 8 prompts of 16 tokens"):
        time_workload(anchor.endpoint, warm_up=WarmUp(prompts(4, 17)))


def test_prompts_of_the_warm_up_may_not_be_timed(anchor: Served) -> None:
    with pytest.raises(ValueError, match="warms up with its own prompts"):
        time_workload(anchor.endpoint, warm_up=WarmUp(prompts(4)))


def test_a_busy_client_is_our_fault(anchor: Served) -> None:
    with pytest.raises(InfraError, match="load client was the bottleneck"):
        time_workload(anchor.endpoint, cpu_share_limit=0.0)


def test_efficiency_is_higher_for_the_better(anchor: Served) -> None:
    anchor.tell(tokens_per_s=100)
    plan = workload(metric="median_tpot_ms", better="lower", max_concurrency=1, num_prompts=2)
    run = time_workload(anchor.endpoint, plan).run
    assert efficiency(run, plan) == pytest.approx(1000 / run.median_tpot_ms)
    assert efficiency(run, workload()) == run.output_throughput


def test_the_error_of_a_speed_comes_from_paired_repeats() -> None:
    """Both sides drift together by 10 %: the ratio does not."""
    assert speed_standard_error([2.0, 2.2], [1.0, 1.1]) == pytest.approx(0, abs=1e-12)
    assert speed_standard_error([2.0, 2.4], [1.0, 1.0]) == pytest.approx(0.2 / 2.2)


def test_the_error_of_a_speed_without_pairs_adds_in_squares() -> None:
    error = speed_standard_error([2.0, 2.2, 2.4], [1.0, 1.1])
    assert error == pytest.approx(((0.2 / 3**0.5 / 2.2) ** 2 + (0.05 / 1.05) ** 2) ** 0.5)


@pytest.mark.parametrize(
    ("candidate", "anchor_side"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0], [1.0, 2.0])]
)
def test_one_repeat_has_no_measured_error(candidate: list[float], anchor_side: list[float]) -> None:
    assert speed_standard_error(candidate, anchor_side) is None


def test_duplicates_among_timed_prompts_are_refused(anchor: Served) -> None:
    import asyncio

    from lowbit_ray.measure.workload import run_workload

    same = [prompts(1)[0]] * 8
    with pytest.raises(ConfigError, match="the same"):
        asyncio.run(run_workload(anchor.endpoint, "serve", workload(), same, timeout_s=5))


def test_a_failure_in_the_warm_up_is_a_failure(anchor: Served) -> None:
    anchor.tell(faults={"http_500_at": 3})
    with pytest.raises(EngineAnswerError, match="HTTP 500"):
        time_workload(anchor.endpoint)
