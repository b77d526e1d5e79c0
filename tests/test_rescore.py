"""New rules over old measurements."""

import json
from typing import Any

import pytest
from fakes.records import moved_record, real_record

from lowbit_ray.errors import ConfigError
from lowbit_ray.migration import migrate
from lowbit_ray.records import Record
from lowbit_ray.rescore import moves, rescore, unjudged
from lowbit_ray.rules import DEFAULT_RULES, Rules, load_rules, parse_rules

OLD = load_rules()


def changed(**score: Any) -> Rules:
    """The rules with other constants; twins follow."""
    text = json.loads(DEFAULT_RULES.read_text())
    text["rules"] |= score
    if "kl_ceiling" in score:
        text["contract"]["kl_ceiling_nats"] = score["kl_ceiling"]
    if "cost_scale" in score:
        text["cost"]["scale_gpu_hours"] = score["cost_scale"]
    return parse_rules(json.dumps(text).encode(), "new.json")


def board(*records: Record, new: Rules) -> Any:
    return moves(records, OLD, new, floor_of=lambda rules: rules.rules.speed_floor, off_board={})


def fast_and_lossy() -> Record:
    return moved_record(1, participant="fast", rate=1.3, kl=0.06, drop=0.001)


def slow_and_faithful() -> Record:
    return moved_record(2, participant="faithful", rate=1.0, kl=0.001, drop=0.0)


def test_the_same_rules_change_nothing() -> None:
    found = board(fast_and_lossy(), slow_and_faithful(), new=OLD)
    assert len(found) == 2
    assert not any(move.changed for move in found)


def test_a_real_record_scores_under_its_own_rules_what_it_says() -> None:
    record = Record.model_validate(migrate(real_record()))
    assert record.result is not None
    again, reason = rescore(record, OLD, speed_floor=record.result.speed_floor)
    assert again.score == pytest.approx(record.result.score, abs=1e-4)
    assert reason == record.result.reason


def test_a_heavier_weight_of_kl_turns_the_board_round() -> None:
    records = (fast_and_lossy(), slow_and_faithful())
    assert [move.participant for move in board(*records, new=OLD)] == ["fast", "faithful"]
    found = board(*records, new=changed(w_kl=0.9))
    assert [(move.participant, move.rank_before, move.rank_after) for move in found] == [
        ("faithful", 2, 1),
        ("fast", 1, 2),
    ]


def test_a_lower_ceiling_breaks_the_contract_and_a_higher_one_mends_it() -> None:
    record = fast_and_lossy()
    (worse,) = board(record, new=changed(kl_ceiling=0.05))
    assert (worse.score_after, worse.qualified_after) == (0.0, False)
    assert worse.reason is not None
    assert "above the ceiling of 0.05" in worse.reason
    over = moved_record(3, participant="over", rate=1.3, kl=0.2, drop=0.01)
    (better,) = board(over, new=changed(kl_ceiling=0.3))
    assert (better.score_before, better.qualified_after) == (0.0, True)
    assert better.score_after is not None
    assert better.score_after > 0


def test_a_higher_speed_floor_costs_the_gate() -> None:
    (move,) = board(slow_and_faithful(), new=changed(speed_floor=1.6))
    assert move.qualified_before
    assert not move.qualified_after
    assert move.score_before is not None
    assert move.score_after == pytest.approx(move.score_before * OLD.rules.fail_share, rel=1e-3)


def test_another_cost_scale_moves_what_was_expensive() -> None:
    dear = moved_record(4, participant="dear", charged_hours=50.0)
    (move,) = board(dear, new=changed(cost_scale=10.0))
    assert move.score_before == move.score_after
    assert move.board_score_after < move.board_score_before / 10


def test_a_record_without_measurements_stays_as_it_is() -> None:
    failed = fast_and_lossy().model_copy(
        update={"result": None, "status": "failed", "error": "the engine died"}
    )
    summary, reason = rescore(failed, changed(w_kl=0.9), speed_floor=0.95)
    assert (summary.score, summary.status, reason) == (None, "failed", "the engine died")


def test_other_margins_of_the_accuracy_gate_are_said_to_be_unjudged() -> None:
    margins = OLD.gate.quality.model_copy(
        update={"required_tier": "A" if OLD.gate.quality.required_tier == "B" else "B"}
    )
    new = OLD.model_copy(update={"gate": OLD.gate.model_copy(update={"quality": margins})})
    assert any("accuracy gate" in note for note in unjudged(OLD, new, []))
    assert unjudged(OLD, OLD, [fast_and_lossy()]) == []


def test_rules_with_a_workload_that_was_never_run_need_new_measurements() -> None:
    fewer = dict(list(OLD.workloads.items())[:2])
    new = OLD.model_copy(update={"workloads": fewer})
    with pytest.raises(ConfigError, match="other workloads"):
        unjudged(OLD, new, [fast_and_lossy()])
