"""Every view of a board is an address; what makes no sense is the plain board."""

from typing import Any

import pytest
from fakes.records import moved_record
from hypothesis import given
from hypothesis import strategies as st

from lowbit_ray.board import Row, rank
from lowbit_ray.rules import load_rules
from lowbit_ray.service.pages.board_query import COLUMNS, BoardQuery

RULES = load_rules()


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    records = [
        moved_record(1, participant="ann", rate=1.1, kl=0.02),
        moved_record(2, participant="Bob", rate=0.9, kl=0.01, precision="W4A16KV16", track="engine"),
        moved_record(3, participant="ref", partition="reference"),
        moved_record(4, participant="eve").model_copy(update={"result": None, "status": "rejected"}),
        moved_record(5, participant="dan", rate=0.5, method="too slow"),
    ]
    return rank(records, RULES)


def names(query: dict[str, str], rows: list[Row]) -> list[str]:
    return [row.participant for row in BoardQuery.read(query).filtered(rows)]


def test_the_plain_board_keeps_its_order(rows: list[Row]) -> None:
    assert names({}, rows) == [row.participant for row in rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"sort": "participant"}, ["ann", "Bob", "dan", "eve", "ref"]),
        ({"sort": "participant", "order": "down"}, ["ref", "eve", "dan", "Bob", "ann"]),
        ({"sort": "kl", "references": "no"}, ["Bob", "dan", "ann", "eve"]),
        ({"track": "engine"}, ["Bob"]),
        ({"precision": "W4A16KV16"}, ["Bob"]),
        ({"q": "SLOW"}, ["dan"]),
        ({"qualified": "yes", "sort": "participant"}, ["ann", "Bob", "ref"]),
    ],
)
def test_sorting_and_filtering(query: dict[str, str], expected: list[str], rows: list[Row]) -> None:
    assert names(query, rows) == expected


def test_what_has_no_value_stands_last_in_either_order(rows: list[Row]) -> None:
    for order in ("up", "down"):
        assert names({"sort": "speed", "order": order}, rows)[-1] == "eve"


def test_a_second_click_turns_the_order(rows: list[Row]) -> None:
    kl = next(column for column in COLUMNS if column.key == "kl")
    first = BoardQuery.read({})
    assert "order=up" in first.sorting(kl)
    again = BoardQuery.read({"sort": "kl", "order": "up"})
    assert again.direction(kl) == "ascending"
    assert "order=down" in again.sorting(kl)


def test_links_keep_the_filter_and_begin_at_the_first_page() -> None:
    query = BoardQuery.read({"track": "engine", "page": "3"})
    assert query.link(sort="kl") == "?sort=kl&order=up&track=engine"
    assert query.link(page=4) == "?track=engine&page=4"


def test_pages_hold_a_hundred_rows_and_no_page_is_beyond_the_last(rows: list[Row]) -> None:
    many = [row for row in rows for _ in range(50)]
    assert [len(BoardQuery(page=page).shown(many).rows) for page in (1, 2, 3, 99)] == [100, 100, 50, 50]


@given(
    st.dictionaries(
        st.sampled_from(["sort", "order", "track", "precision", "q", "page", "qualified"]), st.text()
    )
)
def test_any_address_is_some_view(given_query: dict[str, Any]) -> None:
    query = BoardQuery.read(given_query)
    assert BoardQuery.read(query.given) == query
    assert query.shown([]).rows == []
