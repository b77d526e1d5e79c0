"""JSON of servers that mean no good: a ValueError, or a value that can be kept."""

import json

import pytest

from lowbit_ray.engines.foreign_json import parse_foreign


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff{}",
        b'{"text": "\xed\xa0\x80"}',  # half a character as bytes
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 10_000,
        b"{}{}",
    ],
    ids=["empty", "open", "latin", "half", "brackets", "braces", "number", "two"],
)
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of json, of a codec, or ours
        parse_foreign(data)


def test_halves_of_characters_are_replaced_and_whole_ones_kept() -> None:
    value = parse_foreign(b'{"\\uD800k": ["a\\ud800b", "\\ud83d\\ude00", "\\\\ud800", 1, null]}')
    assert value == {"\N{REPLACEMENT CHARACTER}k": ["a\N{REPLACEMENT CHARACTER}b", "😀", "\\ud800", 1, None]}
    assert json.dumps(value, ensure_ascii=False).encode()


def test_all_else_is_json() -> None:
    for value in ({"a": [1, 2.5, None, True]}, "text ü", 7):
        assert parse_foreign(json.dumps(value).encode()) == value
