"""Streams: from timed reads to a row, whatever the chunks look like."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.stream import Read, Row, mentions_error, raise_error, read_row


def chunk(ids: list[int] | None = None, text: str = "", **fields: Any) -> bytes:
    choice: dict[str, Any] = {"index": 0, "text": text}
    if ids is not None:
        choice["token_ids"] = ids
    return b"data: " + json.dumps({"choices": [choice], **fields}).encode() + b"\n\n"


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}\n\n'
DONE = b"data: [DONE]\n\n"


def row(*data: bytes, ids_expected: bool = True) -> Row:
    return read_row(
        0, 0.0, [Read(float(at), part) for at, part in enumerate(data, 1)], ids_expected=ids_expected
    )


def test_each_chunk_with_a_token_has_the_time_of_its_read() -> None:
    assert row(chunk([1]), chunk([2]), chunk([3]), USAGE, DONE).token_times_s == (1.0, 2.0, 3.0)


def test_an_event_cut_in_two_has_the_time_of_its_end() -> None:
    whole = chunk([1])
    assert row(whole[:20], whole[20:], chunk([2])).token_times_s == (2.0, 3.0)


def test_several_events_in_one_read_share_its_time() -> None:
    assert row(chunk([1]) + chunk([2]), USAGE).token_times_s == (1.0, 1.0)


def test_without_ids_a_chunk_counts_when_it_has_text() -> None:
    assert row(chunk(text=""), chunk(text="a"), ids_expected=False).token_times_s == (2.0,)


def test_usage_and_ids_are_kept() -> None:
    read = row(chunk([7, 8], "ab"), chunk([9], "c"), USAGE)
    assert (read.prompt_tokens, read.completion_tokens) == (5, 3)
    assert (read.token_ids, read.text) == ((7, 8, 9), "abc")


def test_comments_blank_lines_and_carriage_returns_are_skipped() -> None:
    assert row(b": ping\r\n\r\n" + chunk([1]).replace(b"\n", b"\r\n"), b"event: x\n").token_ids == (1,)


def test_a_last_event_without_a_newline_counts() -> None:
    assert row(chunk([1]).rstrip()).token_ids == (1,)


def test_an_error_object_in_the_stream_is_an_error_that_quotes_nothing() -> None:
    with pytest.raises(EngineAnswerError, match="error in place of tokens") as caught:
        row(
            b'data: {"error": {"message": "your prompt was: canary", "type": "server_error", "code": 500}}\n\n'
        )
    assert "canary" not in str(caught.value)
    assert "server_error 500" in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        b"data: nonsense\n",
        b"data: [1]\n",
        b'data: {"choices": [3]}\n',
        b"data: 4\n",
        b'data: {"choices": 3}\n',
    ],
)
def test_an_event_that_is_no_chunk_is_an_error(line: bytes) -> None:
    with pytest.raises(EngineAnswerError, match="not a completion chunk"):
        row(line)


def test_an_empty_stream_is_a_row_without_tokens() -> None:
    assert row().token_times_s == ()


def test_times_follow_their_definitions() -> None:
    read = Row(0, 1.0, (3.0, 4.0, 7.0), 7.5, 5, 5, None, "")
    assert (read.ttft_s, read.tpot_s, read.e2e_s) == (2.0, 1.0, 6.0)


def test_text_that_says_error_is_no_error() -> None:
    spoken = chunk([1], 'he said "error" twice')
    assert not mentions_error(spoken)
    assert row(spoken).token_ids == (1,)


@given(st.lists(st.integers(1, 40), max_size=60))
def test_where_reads_are_cut_changes_neither_ids_nor_text(cuts: list[int]) -> None:
    data = b"".join([chunk([n], chr(97 + n)) for n in range(8)]) + USAGE + DONE
    parts = []
    for cut in cuts:
        parts.append(data[:cut])
        data = data[cut:]
    read = row(*[part for part in [*parts, data] if part])
    assert read.token_ids == tuple(range(8))
    assert read.text == "abcdefgh"
    assert list(read.token_times_s) == sorted(read.token_times_s)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["choices", "usage", "token_ids", "text", "error", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_row_or_an_error_of_ours(value: Any) -> None:
    data = b"data: " + json.dumps(value).encode() + b"\n"
    for ids_expected in (True, False):
        try:
            read = row(data, ids_expected=ids_expected)
        except EngineAnswerError:
            continue
        assert isinstance(read.text, str)


def test_an_event_that_is_still_coming_is_no_error() -> None:
    """`"error": null` in every chunk, and the last one not yet whole."""
    whole = chunk([1], error=None)
    assert mentions_error(whole)
    raise_error([Read(1.0, whole), Read(2.0, whole[:30])])


def test_an_error_is_found_while_the_stream_goes_on() -> None:
    with pytest.raises(EngineAnswerError, match="server_error"):
        raise_error(
            [
                Read(1.0, chunk([1])),
                Read(2.0, b'data: {"error": {"type": "server_error"}}\n'),
                Read(3.0, b"data: {"),
            ]
        )


def test_without_ids_tokens_without_text_take_time_up_to_the_finish_reason() -> None:
    """Special tokens have no text: without the end's time, they would make those before look faster."""
    end = b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\n'
    read = row(chunk(text="a"), chunk(text="b"), chunk(), chunk(), end, USAGE, ids_expected=False)
    assert (read.first_s, read.last_s) == (1.0, 5.0)
    assert read.tpot_s == 2.0
    with_ids = row(chunk([1]), chunk([2]), chunk([3]), end, USAGE)
    assert with_ids.token_times_s == (1.0, 2.0, 3.0), "ids say which chunk has a token"


def test_a_long_line_that_comes_byte_by_byte_takes_no_square_of_time() -> None:
    data = chunk([1], "x" * 600_000)
    reads = [Read(float(at), data[at : at + 1]) for at in range(len(data))]
    began = time.process_time()
    read = read_row(0, 0.0, reads, ids_expected=True)
    assert time.process_time() - began < 8
    assert len(read.text) == 600_000
