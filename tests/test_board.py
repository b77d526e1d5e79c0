"""The board ranks last scored submissions by score and cost, and says which places are tied."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lowbit_ray.board import Summary, rank, summarize
from lowbit_ray.records import Record
from lowbit_ray.rules import load_rules

START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = load_rules()


def entry(participant: str, score: float | None, *, at: int = 0, **changes: Any) -> Summary:
    values: dict[str, Any] = {
        "score": score,
        "score_se": 0.01,
        "qualified": True,
        "efficiency_gain": 1.0,
        "drift": 0.0,
        "drift_se": 0.0,
        "precision": "W8A8KV8",
        "kl": 0.01,
        "mean_drop": 0.0,
        "speed": 1.0,
        "memory": 1.0,
        "peak_gib": 10.0,
        "id": f"{participant}{at:x}".encode().hex().rjust(16, "0")[-16:],
        "task_id": "t",
        "participant": participant,
        "reference": False,
        "method": "m",
        "track": "checkpoint",
        "split": "test",
        "status": "done",
        "charged_hours": 0.0,
        "created_at": START + timedelta(hours=at),
        "updated_at": START + timedelta(hours=at, minutes=1),
    }
    return Summary.model_validate(values | changes)


def names(entries: list[Summary], flags: dict[str, str] | None = None) -> list[tuple[str, int | None]]:
    return [(row.participant, row.rank) for row in rank(entries, RULES, off_board=flags or {})]


def test_the_last_scored_submission_counts_not_the_best() -> None:
    (row,) = rank([entry("a", 1.5, at=0), entry("a", 1.2, at=1)], RULES)
    assert row.score == 1.2


def test_of_two_that_finish_in_one_second_the_later_one_counts() -> None:
    """Records are dated to the second."""
    at = START + timedelta(hours=9)
    for first, second in (("1" * 16, "2" * 16), ("2" * 16, "1" * 16)):
        earlier = entry("a", 1.5, at=0, id=first, updated_at=at)
        later = entry("a", 1.2, at=1, id=second, updated_at=at)
        assert [row.submission for row in rank([later, earlier], RULES)] == [second]


def test_dev_and_failed_submissions_cost_but_do_not_count() -> None:
    (row,) = rank(
        [
            entry("a", 1.5, charged_hours=1.0),
            entry("a", 9.0, at=1, split="dev", charged_hours=2.0),
            entry("a", None, at=2, status="failed", charged_hours=3.0),
        ],
        RULES,
    )
    assert row.score == 1.5
    assert row.gpu_hours == 6.0
    assert row.board_score == pytest.approx(1.5 * math.exp(-0.06))


def test_what_a_participant_cancelled_costs_them_and_nobody_else() -> None:
    rows = rank([entry("a", 1.5, charged_hours=1.0), entry("b", 1.4)], RULES, stopped={"a": 2.0, "c": 9.0})
    assert [(row.participant, row.gpu_hours) for row in rows] == [("a", 3.0), ("b", 0.0)]
    assert rows[0].board_score == pytest.approx(1.5 * math.exp(-0.03))


def test_a_rejected_scored_submission_is_a_row_of_score_0() -> None:
    (row,) = rank([entry("a", 1.5), entry("a", 0.0, at=1, status="rejected")], RULES)
    assert row.board_score == 0


def test_references_stand_in_their_place_without_a_rank_or_a_cost() -> None:
    rows = rank([entry("a", 1.5), entry("bf16", 1.6, reference=True, charged_hours=50.0)], RULES)
    assert [(row.participant, row.rank) for row in rows] == [("bf16", None), ("a", 1)]
    assert rows[0].board_score == 1.6


def test_a_flagged_row_stands_last_without_a_rank() -> None:
    flagged = entry("a", 1.5)
    assert names([flagged, entry("b", 1.0)], {flagged.id: "serves another model"}) == [("b", 1), ("a", None)]
    assert rank([flagged], RULES, off_board={flagged.id: "another model"})[0].flagged == "another model"
    assert rank([flagged], RULES, off_board={flagged.id})[0].flagged == "flagged by an organizer"


def test_equal_scores_go_to_the_earlier() -> None:
    assert names([entry("late", 1.0, at=2), entry("early", 1.0, at=1)]) == [("early", 1), ("late", 2)]


def test_rows_are_tied_where_their_intervals_overlap() -> None:
    rows = rank(
        [
            entry("a", 2.0, score_se=0.01),
            entry("b", 1.5, score_se=0.05),
            entry("c", 1.4, score_se=0.05),
            entry("d", 1.2, score_se=0.06),
            entry("e", 0.2, score_se=None),
        ],
        RULES,
    )
    reached = {row.participant: (row.tied_from, row.tied_to) for row in rows}
    assert reached == {"a": (1, 1), "b": (2, 3), "c": (2, 4), "d": (3, 4), "e": (5, 5)}
    assert [row.tied for row in rows] == [False, True, True, True, False]


def test_a_record_becomes_what_the_board_shows(fixtures: Path) -> None:
    record = Record.model_validate_json((fixtures / "record-smollm2-w8a8.json").read_bytes())
    assert record.result is not None
    view = summarize(record)
    assert view == summarize(json.loads(record.to_json()))
    assert (view.score, view.kl, view.memory) == (
        record.result.score,
        record.result.kl.kl,
        record.result.memory,
    )
    refused = summarize(record.model_copy(update={"result": None, "status": "rejected"}))
    assert (refused.score, refused.kl) == (0.0, None)
    failed = summarize(record.model_copy(update={"result": None, "status": "failed"}))
    assert failed.score is None


def test_thousands_of_rows_are_ranked_at_once() -> None:
    entries = [entry(f"p{number}", 1 + number / 1e4) for number in range(3000)]
    rows = rank(entries, RULES)
    assert [row.rank for row in rows] == list(range(1, 3001))
    assert all(row.tied_from <= row.rank <= row.tied_to for row in rows if row.rank)  # type: ignore[operator]
