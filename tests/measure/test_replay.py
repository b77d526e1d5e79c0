"""The same prompt twice: an engine may not remember its answers."""

import asyncio

from loads import time_workload, workload
from served import Served

from lowbit_ray.measure.replay import Replay, replay


def again(anchor: Served) -> Replay:
    plan = workload(output_len=16)
    timed = time_workload(anchor.endpoint, plan)
    return asyncio.run(replay(anchor.endpoint, plan, timed, timeout_s=5))


def test_an_engine_without_memory_takes_as_long_again(anchor: Served) -> None:
    result = again(anchor.tell(tokens_per_s=40))
    assert result.reason is None
    assert (result.requests, result.same_answers) == (4, 1.0)


def test_remembered_answers_are_found(anchor: Served) -> None:
    result = again(anchor.tell(tokens_per_s=20, faults={"answer_cache": True}))
    assert result.tpot_ratio < 0.5
    assert "answers are remembered" in str(result.reason)


def test_an_engine_without_ids_is_compared_by_time_alone(anchor: Served) -> None:
    assert again(anchor.tell(tokens_per_s=40, faults={"no_token_ids": True})).same_answers is None
