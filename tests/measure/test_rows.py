"""Shapes of log-probabilities, from real answers; and what cannot be one."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.rows import generated_rows, legacy_rows, pack, prompt_rows


def test_real_prompt_logprobs_of_0_25_1_are_read(fixtures: Path) -> None:
    answer = json.loads((fixtures / "vllm-0.25.1-prompt-logprobs20-first40.json").read_text())
    rows = prompt_rows(answer["choices"][0]["prompt_logprobs"], 40)
    assert [len(row) for row in rows] == [0, *[21] * 39]
    assert rows[1][0] == (6851, -11.931207656860352)
    wanted = [row[0][0] for row in rows[1:]]
    ids, logprobs, actual = pack(rows[1:], wanted, 20, actual_required=True)
    assert ids[0, 0] == 18782
    assert np.all(np.diff(logprobs, axis=1) <= 0)
    assert actual[0] == -11.931207656860352


def test_real_logprobs_keyed_by_text_are_none(fixtures: Path) -> None:
    """Different tokens share the text ''; the fixture has 20 asked for and 10 left."""
    answer = json.loads((fixtures / "vllm-0.25.1-completion-logprobs20.json").read_text())
    logprobs = answer["choices"][0]["logprobs"]
    assert len(logprobs["top_logprobs"][0]) < 20
    assert legacy_rows(logprobs) is None


def test_ids_in_place_of_text_are_read() -> None:
    value = {
        "tokens": ["token_id:5", "token_id:6"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"token_id:6": -0.5, "token_id:7": -1.0}],
    }
    rows = legacy_rows(value)
    assert rows is not None
    assert [(row.token, row.top) for row in rows] == [(5, []), (6, [(6, -0.5), (7, -1.0)])]


def test_llama_cpps_list_is_read() -> None:
    value = {
        "content": [{"id": 6, "token": "x", "logprob": -0.5, "top_logprobs": [{"id": 6, "logprob": -0.5}]}]
    }
    rows = generated_rows(value)
    assert rows is not None
    assert (rows[0].token, rows[0].top) == (6, [(6, -0.5)])


@pytest.mark.parametrize(
    "value",
    [
        {"tokens": ["token_id:5"], "top_logprobs": []},
        {"tokens": ["token_id:x"], "top_logprobs": [{}]},
        {"tokens": ["token_id:5"], "top_logprobs": [{"token_id:5": None}]},
        {"content": [{"token": "x"}]},
        {"content": [{"id": math.inf, "top_logprobs": []}]},
        {},
        3,
    ],
)
def test_what_has_another_shape_is_malformed(value: Any) -> None:
    with pytest.raises(EngineAnswerError, match="malformed"):
        legacy_rows(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([None], "wrong length, found 1 rows, expected 2 rows"),
        ({"1": {}}, "wrong length, found dict"),
        ([None, None], "a position has no log-probabilities"),
        ([None, {}], "a position has no log-probabilities"),
        ([None, {"5": {"rank": 1}}], "malformed"),
        ([None, {"five": {"logprob": -1}}], "malformed"),
    ],
)
def test_prompt_rows_that_lack_something_name_the_place(value: Any, words: str) -> None:
    with pytest.raises(EngineAnswerError, match=words):
        prompt_rows(value, 2)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([(-5, -1.0)], "out of range"),
        ([(2**31, -1.0)], "out of range"),
        ([(5, math.nan)], "not finite"),
        ([(5, -math.inf)], "not finite"),
        ([(5, 0.01)], "positive, found 0.01"),
        ([(5, -0.1), (6, -0.2)], "sum to more than 1"),
        ([(5, -1.0)], "fewer log-probabilities than asked for, found 1, expected 2"),
        ([(6, -0.7), (7, -0.7)], "own token has no log-probability"),
    ],
)
def test_what_cannot_be_a_log_probability_is_refused(row: list[tuple[int, float]], words: str) -> None:
    with pytest.raises(EngineAnswerError, match=words):
        pack([row], [5], 2, actual_required=True)


def test_rounding_above_zero_is_forgiven_and_clipped() -> None:
    _, logprobs, actual = pack([[(5, 1e-6)]], [5], 1, actual_required=True)
    assert logprobs[0, 0] == 0.0
    assert actual[0] == 0.0


def test_a_small_vocabulary_may_list_all_of_itself() -> None:
    ids, logprobs, _ = pack([[(5, math.log(0.25)), (6, math.log(0.75))]], [5], 4, actual_required=True)
    assert ids.tolist() == [[6, 5, -1, -1]]
    assert np.exp(logprobs).sum() == pytest.approx(1)


def test_a_token_that_is_not_listed_is_unknown_where_it_may_be() -> None:
    assert np.isnan(pack([[(6, -0.1)]], [5], 1, actual_required=False)[2][0])


def test_the_texts_own_token_does_not_displace_the_top() -> None:
    """vLLM lists it first, whatever its rank."""
    ids, _, actual = pack([[(9, -8.0), (1, -0.5), (2, -1.5)]], [9], 2, actual_required=True)
    assert ids.tolist() == [[1, 2]]
    assert actual[0] == -8.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(["token_id:3", "x", "7"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["tokens", "top_logprobs", "content", "id", "logprob", "token_id:3", "7"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=14,
)


@given(JSON, st.lists(JSON, max_size=4))
@settings(max_examples=300)
def test_any_json_is_rows_or_an_error_of_ours(value: Any, rows: list[Any]) -> None:
    for read in (
        lambda: legacy_rows(value),
        lambda: generated_rows(value),
        lambda: prompt_rows(rows, len(rows)),
    ):
        try:
            found = read()
        except EngineAnswerError:
            continue
        assert found is None or isinstance(found, list)


@pytest.mark.parametrize("token", [10**60 + 7, -(10**60) - 7])
def test_an_id_that_is_none_is_not_repeated(token: int) -> None:
    """Digits enough for a sentence of a prompt."""
    with pytest.raises(EngineAnswerError, match="out of range") as caught:
        pack([[(token, -1.0)]], [1], 1, actual_required=False)
    assert "0000" not in str(caught.value)
