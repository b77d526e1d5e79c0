"""What users of other benchmarks ran into, one test a lesson.

A: wrong or unstable figures. B: log-probabilities and KL. C: KV cache and memory metrics.
"""

import asyncio
import inspect
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from answering import answering
from loads import load, prompts, time_workload, workload
from served import Served
from test_peak_memory import Accounts, run

from lowbit_ray.errors import ConfigError, EngineAnswerError, InfraError
from lowbit_ray.measure import logprobs, runs
from lowbit_ray.measure.gauges import read_gauges
from lowbit_ray.measure.kl import KLResult, make_reference, measure_kl
from lowbit_ray.measure.load import Load
from lowbit_ray.measure.logprobs import METHODS, Question, ask
from lowbit_ray.measure.memory import peak_memory
from lowbit_ray.measure.prompts import PREFIX, cut_prompts, derive_seed
from lowbit_ray.measure.runs import WorkloadRun
from lowbit_ray.measure.trust import check_run
from lowbit_ray.measure.workload import WarmUp, run_workload, speed_standard_error
from lowbit_ray.tasks import KLPlan

POOL = np.random.default_rng(0).integers(0, 250, 50_000).astype(np.int32)


# A: wrong or unstable figures


def test_a_second_run_has_other_prompts() -> None:
    first, second = (cut_prompts(POOL, 20, 64, derive_seed(b"secret", "serve", repeat)) for repeat in "01")
    assert not {prompt[:PREFIX] for prompt in first} & {prompt[:PREFIX] for prompt in second}


def test_prefix_cache_hits_in_the_timed_window_fail_the_run(anchor: Served) -> None:
    anchor.tell(faults={"prefix_hits": 1})
    with pytest.raises(EngineAnswerError, match="found in a prefix cache"):
        time_workload(anchor.endpoint)


def test_duplicated_prompts_are_refused() -> None:
    with pytest.raises(ConfigError, match="the same"):
        Load(prompts=[(1, 2), (1, 2)], output_len=2, concurrency=1)


def test_prompts_are_ids_and_the_servers_count_of_them_is_the_plan(anchor: Served) -> None:
    anchor.tell(faults={"wrong_prompt_usage": 1})
    with pytest.raises(EngineAnswerError, match=r"usage\.prompt_tokens.*found 17, expected 16"):
        load(anchor.endpoint)


def test_time_per_token_counts_tokens_and_not_chunks(anchor: Served) -> None:
    """Two tokens a chunk: half the chunks, and the time per token is that of a token."""
    anchor.tell(tokens_per_s=50, faults={"chunk_tokens": 2})
    timed = time_workload(anchor.endpoint)
    for row in timed.rows:
        assert len(row.token_times_s) == 4
        assert row.tpot_s == (row.last_s - row.first_s) / 7
    assert timed.run.itl_ms.mean == pytest.approx(timed.run.tpot_ms.mean * 7 / 3)


def test_an_empty_first_chunk_is_no_token(anchor: Served) -> None:
    """It comes at once; the first token after 100 ms."""
    anchor.tell(tokens_per_s=10, faults={"empty_first": True})
    for row in load(anchor.endpoint, count=2, output_len=3).rows:
        assert row.ttft_s > 0.09
        assert len(row.token_times_s) == 3


def test_the_servers_count_is_held_against_the_ids(anchor: Served) -> None:
    """Two tokens fewer than asked for, and a usage that hides it."""
    anchor.tell(faults={"short": 2, "wrong_usage": 2})
    with pytest.raises(EngineAnswerError, match=r"token_ids: .*wrong number of tokens, found 4, expected 6"):
        load(anchor.endpoint)


def test_definitions_stand_beside_the_numbers() -> None:
    words = " ".join((runs.__doc__ or "").split())
    for definition in ("prefill and queueing included", "TTFT runs from submission", "(tokens − 1)"):
        assert definition in words
    source = inspect.getsource(WorkloadRun)
    assert source.count('"""') >= 2 * 12, "each figure says what it is"


def test_time_in_the_servers_queue_is_shown_apart(anchor: Served) -> None:
    anchor.tell(kv_bytes_per_token=2**28)
    timed = time_workload(anchor.endpoint, workload(max_concurrency=8)).run
    assert timed.mean_queue_ms is not None
    assert timed.mean_queue_ms < timed.ttft_ms.mean


def test_a_model_that_would_stop_is_held_to_its_length(anchor: Served) -> None:
    anchor.tell(bigram={"eos_logit": 20})
    assert {row.completion_tokens for row in load(anchor.endpoint).rows} == {6}


def test_repeats_of_both_sides_give_a_measured_error() -> None:
    assert speed_standard_error([110, 112, 108], [100, 101, 99]) == pytest.approx(0.00472, abs=1e-5)


def test_one_user_alone_is_scored_by_a_median_over_requests(anchor: Served) -> None:
    plan = workload(metric="median_tpot_ms", better="lower", max_concurrency=1, num_prompts=3)
    timed = time_workload(anchor.endpoint, plan)
    assert timed.run.median_tpot_ms == pytest.approx(1000 * sorted(row.tpot_s for row in timed.rows)[1])


def test_warm_up_has_the_same_shapes_and_ends_when_passes_agree(anchor: Served) -> None:
    with pytest.raises(ValueError, match="16 tokens"):
        time_workload(anchor.endpoint, warm_up=WarmUp(prompts(4, 8)))
    assert (
        time_workload(anchor.endpoint, warm_up=WarmUp(prompts(4, seed=5), agreement=1.0)).run.warm_up_passes
        == 2
    )


@pytest.mark.parametrize("fault", ["http_500_at", "error_stream_at"])
def test_any_failed_request_fails_the_workload(anchor: Served, fault: str) -> None:
    anchor.tell(faults={fault: 12})
    with pytest.raises(EngineAnswerError, match=r"request . of 8 failed"):
        time_workload(anchor.endpoint)


def test_no_time_is_zero_or_negative(anchor: Served) -> None:
    for row in load(anchor.endpoint).rows:
        assert 0 < row.ttft_s <= row.e2e_s
        assert row.tpot_s >= 0
        assert list(row.token_times_s) == sorted(row.token_times_s)


def test_a_seed_is_of_submission_workload_repeat_and_secret() -> None:
    labels = ("submission", "serve", "0")
    base = derive_seed(b"secret", *labels)
    for place in range(3):
        changed = [*labels]
        changed[place] += "x"
        assert derive_seed(b"secret", *changed) != base
    assert derive_seed(b"other", *labels) != base


def test_realised_lengths_are_the_advertised_ones(anchor: Served) -> None:
    timed = time_workload(anchor.endpoint).run
    assert (timed.mean_input_len, timed.mean_output_len) == (16, 8)


def test_the_client_tests_itself_while_it_measures(anchor: Served) -> None:
    timed = time_workload(anchor.endpoint).run
    assert timed.client_lag_ms is not None
    assert timed.client_lag_ms >= 0
    assert timed.client_cpu_share > 0


def test_a_run_bound_by_its_client_is_refused() -> None:
    busy = run(0.5).model_copy(update={"client_cpu_share": 0.95})
    with pytest.raises(InfraError, match="load client was the bottleneck"):
        check_run(busy, workload(), cpu_share_limit=0.9)


def test_duplicated_end_tokens_are_not_paid_for(anchor: Served) -> None:
    """The audit counts what comes before the first end; see test_audit for the padded tail."""
    anchor.tell(faults={"eos_tail": 3})
    rows = load(anchor.endpoint).rows
    assert all(row.token_ids is not None and row.token_ids[-3:] == (256, 256, 256) for row in rows)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_figure_that_is_not_finite_cannot_be_written(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        WorkloadRun.model_validate({**run(0.5).model_dump(), "output_throughput": value})


# B: log-probabilities and KL


def test_few_texts_are_in_flight_at_once() -> None:
    flying, most = 0, 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        prompt = (await request.json())["prompt"]
        await asyncio.sleep(0.05)
        flying -= 1
        rows = [None, *({str(token): {"logprob": 0.0}} for token in prompt[1:])]
        return web.json_response({"choices": [{"prompt_logprobs": rows}]})

    async def go() -> None:
        async with answering(handler) as endpoint:
            texts = [Question(prompt, 1) for prompt in prompts(12)]
            await ask(endpoint, texts, 1, method="prompt_logprobs", concurrency=3, timeout_s=5)

    asyncio.run(go())
    assert most == 3
    assert KLPlan().max_concurrency <= 16


def test_log_probabilities_that_depend_on_the_order_are_found(anchor: Served, candidate: Served) -> None:
    said = asyncio.run(make_reference(anchor.endpoint, prompts(3), PLAN, timeout_s=10))
    candidate.tell(faults={"order_dependent": True})
    with pytest.raises(EngineAnswerError, match="depend on the order"):
        asyncio.run(measure_kl(candidate.endpoint, said, concurrency=2, timeout_s=10))


PLAN = KLPlan(sequences=3, prompt_len=16, max_tokens=4, top_k=10, max_concurrency=2)


def test_every_token_but_the_first_has_its_row(anchor: Served) -> None:
    anchor.tell(faults={"missing_row": True})
    texts = [Question(prompt, 1) for prompt in prompts(2)]
    with pytest.raises(EngineAnswerError, match="a position has no log-probabilities"):
        asyncio.run(ask(anchor.endpoint, texts, 5, method="prompt_logprobs", concurrency=1, timeout_s=10))


def test_the_noise_floor_is_the_same_probe_at_the_same_concurrency(anchor: Served) -> None:
    said = asyncio.run(make_reference(anchor.endpoint, prompts(3), PLAN, timeout_s=10))
    floor = asyncio.run(
        measure_kl(anchor.endpoint, said, concurrency=PLAN.max_concurrency, timeout_s=10, seed=1)
    )
    assert (floor.kl, floor.sequences, floor.top_k) == (0, 3, 10)


def test_a_kl_comes_with_its_standard_error() -> None:
    assert {"kl", "kl_se"} <= set(KLResult.model_fields)
    assert KLResult.model_fields["kl_se"].annotation is float


def test_texts_are_sent_as_ids() -> None:
    """Whatever is asked: no tokenizer of the server's has a say."""
    asked: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response({}, status=400)

    async def go() -> None:
        async with answering(handler) as endpoint:
            texts = [Question(prompt, 4) for prompt in prompts(1)]
            questions = [
                ask(endpoint, texts, 5, method=method, concurrency=1, timeout_s=5) for method in METHODS
            ]
            for question in (*questions, make_reference(endpoint, prompts(2), PLAN, timeout_s=5)):
                with pytest.raises(EngineAnswerError):
                    await question
            with pytest.raises(EngineAnswerError):
                await run_workload(endpoint, "serve", workload(), prompts(8), timeout_s=5)

    asyncio.run(go())
    assert len(asked) >= 5
    assert all(type(token) is int for body in asked for token in body["prompt"])


def test_only_the_top_k_travel(anchor: Served) -> None:
    (answer,) = asyncio.run(
        ask(anchor.endpoint, [Question(prompts(1)[0], 1)], 7, method="echo", concurrency=1, timeout_s=10)
    )
    assert answer.ids.shape == (15, 7)


def test_the_divergence_is_computed_here_of_what_any_server_answers(
    anchor: Served, candidate: Served
) -> None:
    """No engine has to be able to: all three ways to ask give the same."""
    anchor.base["tokens_per_s"] = candidate.base["tokens_per_s"] = 0
    said = asyncio.run(make_reference(anchor.tell().endpoint, prompts(3), PLAN, timeout_s=10))
    values = []
    for faults in ({}, {"no_prompt_logprobs": True}, {"no_prompt_logprobs": True, "no_echo": True}):
        candidate.tell(faults=faults)
        values.append(asyncio.run(measure_kl(candidate.endpoint, said, concurrency=2, timeout_s=10)))
    assert [value.method for value in values] == list(METHODS)
    assert values[0].kl > 0
    # where the server lists no more than its top K, a text's own token beyond them is unknown: a lower bound
    assert values[0].kl == pytest.approx(values[1].kl)
    assert 0 < values[2].kl <= values[1].kl + 1e-9


def test_a_limit_on_log_probabilities_is_named_with_its_flag(anchor: Served) -> None:
    anchor.tell(faults={"few_logprobs": 3})
    with pytest.raises(EngineAnswerError, match="--max-logprobs"):
        asyncio.run(logprobs.probe(anchor.endpoint, prompts(1)[0], 10, timeout_s=10))


def test_the_bound_is_called_one_and_its_tail_is_shown() -> None:
    assert "lower bound" in (KLResult.__doc__ or "")
    assert {"tail_mass", "top_k", "unlisted"} <= set(KLResult.model_fields)


# C: KV cache and memory metrics


@pytest.mark.parametrize("name", ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"])
def test_both_names_of_the_gauge_are_read(name: str) -> None:
    assert read_gauges(f'{name}{{engine="0"}} 0.25\n').kv_usage == 0.25


def test_an_engine_with_accounts_and_neither_gauge_is_an_error() -> None:
    with pytest.raises(EngineAnswerError, match="did not say how full"):
        peak_memory(Accounts(1, 1, 1), run(None), workload())


def test_the_old_gauge_measures_like_the_new_one(anchor: Served) -> None:
    anchor.tell(kv_bytes_per_token=2**20, faults={"old_gauge": True})
    old = time_workload(anchor.endpoint).run.kv_usage
    anchor.tell(kv_bytes_per_token=2**20)
    assert old == time_workload(anchor.endpoint).run.kv_usage


def test_a_gauge_that_shows_zero_under_load_is_an_error(anchor: Served) -> None:
    anchor.tell(faults={"zero_gauge": True})
    with pytest.raises(EngineAnswerError, match="Serve with one API server"):
        time_workload(anchor.endpoint)


def test_bytes_come_from_the_pools_accounts_and_not_from_the_gauge_alone() -> None:
    small, large = (peak_memory(Accounts(1, 1, pool), run(0.5), workload()) for pool in (2.0, 4.0))
    assert (small.kv_gib, large.kv_gib) == (1.0, 2.0)


def test_the_gauge_is_a_share_of_the_pool_and_more_than_all_of_it_is_refused() -> None:
    with pytest.raises(EngineAnswerError, match="at most 1"):
        peak_memory(Accounts(1, 1, 1), run(1.2), workload())
