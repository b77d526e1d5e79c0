"""The same prompt twice: an engine may not remember its answers."""

import asyncio

import pytest
from loads import prompts, time_workload, unless_starved, workload
from served import Served

from lowbit_ray.conduct import ConductLimits
from lowbit_ray.measure.replay import Replay, fresh_needed, replay

LIMITS = ConductLimits()
PLAN = workload(output_len=16)


def again(anchor: Served) -> Replay:
    """What was timed is asked again, beside prompts that were not."""
    timed = time_workload(anchor.endpoint, PLAN)
    seen = [output.prompt for output in timed.outputs[:3]]
    fresh = prompts(fresh_needed(LIMITS), PLAN.input_len, seed=99)
    return unless_starved(
        lambda: asyncio.run(replay(anchor.endpoint, PLAN, seen, fresh, LIMITS, timeout_s=5))
    )


def test_an_engine_without_memory_takes_as_long_again_and_is_asked_four_times(anchor: Served) -> None:
    result = again(anchor.tell(tokens_per_s=40))
    assert result.breach("serve", LIMITS) is None
    assert result.requests == 4 * result.rounds  # one round, unless the machine was busy in it


def test_remembered_answers_are_found_in_every_round(anchor: Served) -> None:
    result = again(anchor.tell(tokens_per_s=20, faults={"answer_cache": True}))
    breach = result.breach("workload serve", LIMITS)
    assert breach is not None
    assert result.rounds == LIMITS.replay_rounds
    assert "answers are remembered" in str(breach.error)
    assert "engine rule “answer cache”, workload serve" in str(breach.error)
    assert "expected ≥ 0.6" in str(breach.error)


def test_an_engine_without_ids_is_compared_by_time_alone(anchor: Served) -> None:
    anchor.tell(tokens_per_s=20, faults={"answer_cache": True, "no_token_ids": True})
    assert again(anchor).tpot_ratio < 0.5


def test_an_engine_that_sends_whole_answers_is_compared_by_their_time(anchor: Served) -> None:
    """One chunk: no time per token, so that of the answer counts; remembered or not."""
    faults = {"chunk_tokens": 64}
    assert again(anchor.tell(tokens_per_s=100, faults=faults)).breach("serve", LIMITS) is None
    faults["answer_cache"] = True
    assert again(anchor.tell(tokens_per_s=20, faults=faults)).breach("serve", LIMITS) is not None


def test_a_prefix_cache_alone_is_no_memory_of_answers(anchor: Served) -> None:
    """It shortens the time to the first token, not the time per token."""
    result = again(anchor.tell(tokens_per_s=40, prefill_tokens_per_s=100))
    assert result.breach("serve", LIMITS) is None


def test_it_takes_enough_fresh_prompts(anchor: Served) -> None:
    with pytest.raises(ValueError, match="6 fresh ones"):
        asyncio.run(replay(anchor.endpoint, PLAN, prompts(1), prompts(5, seed=9), LIMITS, timeout_s=5))
