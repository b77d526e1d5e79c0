"""The load client: exact lengths, closed loop, and no failure that is averaged away."""

import asyncio
import time
from pathlib import Path

import pytest
from fakes.checkpoints import write_anchor
from loads import load, prompts
from served import Served, Start

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure import flight
from lowbit_ray.measure.endpoint import connect
from lowbit_ray.measure.load import Extensions, Load, negotiate


def test_every_prompt_gets_a_row_in_its_place(anchor: Served) -> None:
    result = load(anchor.endpoint, count=7)
    assert [row.index for row in result.rows] == list(range(7))
    sent = prompts(7)
    for row, prompt in zip(result.rows, sent, strict=True):
        assert row.token_ids == tuple(anchor.bigram.greedy(prompt[-1], 6, forbid=[256]))


def test_counts_come_from_usage(anchor: Served) -> None:
    for row in load(anchor.endpoint).rows:
        assert (row.prompt_tokens, row.completion_tokens) == (16, 6)


def test_the_loop_is_closed(anchor: Served) -> None:
    """Two in flight: the third request is sent when the first or second has ended."""
    anchor.tell(tokens_per_s=100)
    rows = load(anchor.endpoint, count=6).rows
    for index in range(2, 6):
        in_flight = [row for row in rows[:index] if row.ended_s > rows[index].submitted_s]
        assert len(in_flight) < 2


def test_wall_time_ends_with_the_last_answer(anchor: Served) -> None:
    anchor.tell(tokens_per_s=100)
    start = time.perf_counter()
    result = load(anchor.endpoint, count=4)
    assert max(row.ended_s for row in result.rows) == result.wall_s
    assert 0.12 < result.wall_s < time.perf_counter() - start


def test_progress_counts_tokens_from_the_start_and_while_they_come(anchor: Served) -> None:
    """A long prompt on a slow machine is silent for minutes, and the first answer takes as long."""
    anchor.tell(tokens_per_s=10)
    seen: list[tuple[int, int]] = []
    load(anchor.endpoint, count=2, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 12)
    assert seen[-1] == (12, 12)
    assert seen == sorted(seen)
    assert any(0 < done < 6 for done, _ in seen), "before any request is done"


def test_what_an_answer_in_too_many_pieces_takes_of_our_memory_is_bounded(
    anchor: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "BYTES_A_READ", 2**19)
    with pytest.raises(EngineAnswerError, match="the answer is too large"):
        load(anchor.endpoint)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"ignore_min_tokens": True}, "Honour `ignore_eos`"),
        ({"wrong_prompt_usage": 1}, "Take the prompt's ids"),
    ],
)
def test_a_wrong_length_says_what_to_do(anchor: Served, faults: dict[str, object], words: str) -> None:
    anchor.tell(bigram={"eos_logit": 20}, faults=faults)
    with pytest.raises(EngineAnswerError, match=words):
        load(anchor.endpoint)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"short": 2}, "usage.completion_tokens.*wrong number of tokens, found 4, expected 6"),
        ({"wrong_usage": 1}, "usage.completion_tokens.*found 7, expected 6"),
        ({"wrong_prompt_usage": -1}, "usage.prompt_tokens.*found 15, expected 16"),
        ({"no_usage": True}, "usage.completion_tokens.*found none, expected 6"),
        ({"http_500_at": 3}, "HTTP 500"),
        ({"error_stream_at": 3}, "error in place of tokens"),
    ],
)
def test_one_bad_request_fails_the_load_with_its_reason(
    anchor: Served, faults: dict[str, object], words: str
) -> None:
    anchor.tell(faults=faults)
    with pytest.raises(EngineAnswerError, match=words):
        load(anchor.endpoint)


def test_an_engine_that_stops_at_the_end_of_the_sequence_fails_the_load(anchor: Served) -> None:
    anchor.tell(bigram={"eos_logit": 20}, faults={"ignore_min_tokens": True})
    with pytest.raises(EngineAnswerError, match="found 1, expected 6"):
        load(anchor.endpoint)


def test_a_model_that_wants_to_end_is_held_to_the_length(anchor: Served) -> None:
    anchor.tell(bigram={"eos_logit": 20})
    assert [row.completion_tokens for row in load(anchor.endpoint).rows] == [6, 6, 6, 6]


def test_the_error_counts_the_request_and_says_nothing_hidden(anchor: Served) -> None:
    anchor.tell(faults={"error_stream_at": 4})
    with pytest.raises(EngineAnswerError, match=r"request \d of 4 failed"):
        load(anchor.endpoint)


@pytest.mark.parametrize("fault", ["hang", "trickle"])
def test_a_stream_that_stops_ends_in_bounded_time(anchor: Served, fault: str) -> None:
    """`trickle` sends comments for ever: bytes, but no token."""
    anchor.tell(faults={fault: True})
    start = time.monotonic()
    with pytest.raises(EngineAnswerError, match="stopped answering"):
        load(anchor.endpoint, timeout_s=0.2)
    assert time.monotonic() - start < 4


def test_a_server_that_dies_in_a_request_fails_the_load(start_engine: Start, tmp_path: Path) -> None:
    served = start_engine(write_anchor(tmp_path / "model", faults={"dies_at": 3}))
    with pytest.raises(EngineAnswerError, match="request 2 of 4 failed: the connection to the server failed"):
        load(served.endpoint)


def test_tokens_that_come_at_once_are_counted_all_the_same(anchor: Served) -> None:
    """vLLM merges the chunks of a stream that its server is late to send."""
    anchor.tell(faults={"chunk_tokens": 6})
    for row in load(anchor.endpoint).rows:
        assert (row.completion_tokens, len(row.token_times_s), row.tpot_s) == (6, 1, 0)


def test_the_client_notes_how_late_it_woke(anchor: Served) -> None:
    result = load(anchor.endpoint, count=3, progress=lambda done, total: time.sleep(0.1))
    assert result.client_lag_s > 0.05


def test_duplicate_prompts_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match="two prompts of a workload are the same"):
        Load(prompts=[(1, 2), (3, 4), (1, 2)], output_len=2, concurrency=1)


@pytest.mark.parametrize(
    "fields", [{"prompts": []}, {"prompts": [()]}, {"output_len": 0}, {"concurrency": 0}]
)
def test_a_load_of_nothing_is_refused(fields: dict[str, object]) -> None:
    whole: dict[str, object] = {"prompts": [(1, 2)], "output_len": 2, "concurrency": 1}
    with pytest.raises(ConfigError):
        Load(**{**whole, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({}, Extensions(min_tokens=True, return_token_ids=True)),
        ({"strict_body": True}, Extensions(min_tokens=False, return_token_ids=False)),
        ({"no_token_ids": True}, Extensions(min_tokens=True, return_token_ids=False)),
    ],
)
def test_extensions_are_those_the_server_knows(
    anchor: Served, faults: dict[str, object], expected: Extensions
) -> None:
    anchor.tell(faults=faults)

    async def go() -> Extensions:
        async with connect(anchor.endpoint, timeout_s=5) as session:
            return await negotiate(session, anchor.endpoint, (1, 2, 3))

    assert asyncio.run(go()) == expected


@pytest.mark.parametrize("faults", [{"strict_body": True}, {"no_token_ids": True}])
def test_a_server_without_token_ids_is_measured_by_its_text(
    anchor: Served, faults: dict[str, object]
) -> None:
    anchor.tell(faults=faults)
    for row in load(anchor.endpoint).rows:
        assert row.token_ids is None
        assert len(row.text) == 6
        assert len(row.token_times_s) == 6


def test_a_failed_load_leaves_no_request_behind(anchor: Served) -> None:
    anchor.tell(tokens_per_s=2, faults={"error_stream_at": 3})
    start = time.monotonic()
    with pytest.raises(EngineAnswerError):
        load(anchor.endpoint, count=4, timeout_s=30)
    assert time.monotonic() - start < 2.5, "the slow request was waited for"
