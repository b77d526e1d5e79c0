"""Who has to be let first among those that wait for the same kind of pod."""

from typing import Any

from lowbit_ray.engines.turn import SLACK_S, Turn

BUNDLE = {"GPU": 1.0, "CPU": 8.0}


def group(turn: Turn, *, state: str = "PENDING", bundle: dict[str, float] | None = None) -> dict[str, Any]:
    """As Ray's table has one."""
    return {"name": turn.group_name(), "state": state, "bundles": {0: bundle or BUNDLE}}


def test_who_waits_longer_comes_first() -> None:
    early, late = Turn(scored=False, since=1.7e9), Turn(scored=False, since=1.7e9 + SLACK_S + 0.5)
    assert late.is_behind([group(early)], BUNDLE)
    assert not early.is_behind([group(late)], BUNDLE)


def test_no_gpu_idles_for_the_order_of_two_that_wait_for_about_as_long() -> None:
    early, late = Turn(scored=False, since=1.7e9), Turn(scored=False, since=1.7e9 + SLACK_S - 0.5)
    assert not late.is_behind([group(early)], BUNDLE)


def test_a_scored_one_comes_before_those_that_wait_longer() -> None:
    dev, scored = Turn(scored=False, since=1.7e9), Turn(scored=True, since=1.7e9 + 60)
    assert dev.is_behind([group(scored)], BUNDLE)
    assert not scored.is_behind([group(dev)], BUNDLE)


def test_nobody_is_behind_himself() -> None:
    turn = Turn(scored=False)
    assert not turn.is_behind([group(turn), group(turn)], BUNDLE)


def test_who_has_a_pod_or_wants_another_kind_is_not_waited_for() -> None:
    turn, first = Turn(scored=False), Turn(scored=True)
    assert not turn.is_behind([group(first, state="CREATED"), group(first, state="REMOVED")], BUNDLE)
    assert not turn.is_behind([group(first, bundle={"GPU": 2.0, "CPU": 8.0})], BUNDLE)


def test_groups_of_others_are_left_alone() -> None:
    assert not Turn(scored=False).is_behind(
        [{"name": "", "state": "PENDING", "bundles": {0: BUNDLE}}], BUNDLE
    )


def test_each_group_has_a_name_of_its_own() -> None:
    turn = Turn(scored=True)
    assert len({turn.group_name() for _ in range(9)}) == 9
