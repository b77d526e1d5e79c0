"""Who has to be let first among those that wait for a pod, and which hosts run empty for somebody."""

import time
from typing import Any

import pytest

from lowbit_ray.engines.nodes import Node
from lowbit_ray.engines.turn import SLACK_S, Turn

BUNDLE = {"GPU": 1.0, "CPU": 8.0}
WHOLE = {"GPU": 8.0, "CPU": 64.0}


def group(
    turn: Turn, *, state: str = "PENDING", bundle: dict[str, float] | None = None, node: str = ""
) -> dict[str, Any]:
    """As Ray's table has one."""
    return {
        "name": turn.group_name(),
        "state": state,
        "bundles": {0: bundle or BUNDLE},
        "bundles_to_node_id": {0: node},
    }


def node(name: str, label: str = "H200", **free: float) -> Node:
    return Node(name, name, {"ray.io/accelerator-type": label}, WHOLE, {**WHOLE, **free})


def ago(seconds: float, *, scored: bool = False, accelerator: str | None = None, alone: bool = False) -> Turn:
    return Turn(scored, time.time() - seconds, accelerator, alone)


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


def test_a_scored_one_of_another_task_comes_first_where_it_needs_no_more() -> None:
    dev, scored = Turn(scored=False), Turn(scored=True)
    assert dev.is_behind([group(scored, bundle={"GPU": 1.0, "CPU": 4.0})], BUNDLE)


@pytest.mark.parametrize(
    ("ours", "theirs", "behind"),
    [
        ("H200", "H200", True),
        ("H200", None, True),
        (None, "H200", True),
        ("H200", "H100", False),
        ("A100-40G", "A100-40G", True),
        ("A100-40G", "A100-80G", False),
    ],
)
def test_one_that_needs_another_accelerator_is_not_waited_for(
    ours: str | None, theirs: str | None, behind: bool
) -> None:
    dev, scored = Turn(scored=False, accelerator=ours), Turn(scored=True, accelerator=theirs)
    assert dev.is_behind([group(scored)], BUNDLE) is behind


def test_who_has_a_pod_or_needs_more_is_not_waited_for() -> None:
    turn, first = Turn(scored=False), Turn(scored=True)
    assert not turn.is_behind([group(first, state="CREATED"), group(first, state="REMOVED")], BUNDLE)
    assert not turn.is_behind([group(first, bundle={"GPU": 2.0, "CPU": 8.0})], BUNDLE)


def test_groups_of_others_are_left_alone() -> None:
    others = [{"name": "", "state": "PENDING", "bundles": {0: BUNDLE}}]
    assert not Turn(scored=False).is_behind(others, BUNDLE)
    assert Turn(scored=False).kept(others, BUNDLE, [node("a")]) == set()


def test_each_group_has_a_name_of_its_own() -> None:
    turn = Turn(scored=True)
    assert len({turn.group_name() for _ in range(9)}) == 9


def test_the_host_on_which_the_least_is_in_use_runs_empty_for_one_that_needs_more() -> None:
    small, large = ago(0), ago(60)
    groups = [
        group(large, bundle=WHOLE),
        *(group(ago(99), state="CREATED", node="a") for _ in range(3)),
        *(group(ago(99), state="CREATED", node="b") for _ in range(2)),
        *(group(ago(99), state="CREATED", node="c") for _ in range(3)),
    ]
    nodes = [node("a", GPU=5.0), node("b", GPU=6.0), node("c", GPU=5.0)]
    assert small.kept(groups, BUNDLE, nodes) == {"b"}
    # what the one that looks has been given itself does not count, or another host would be chosen each time
    assert small.kept(
        [*groups, *(group(small, state="CREATED", node="b") for _ in range(2))], BUNDLE, nodes
    ) == {"b"}


def test_a_host_runs_empty_for_one_that_needs_it_for_itself() -> None:
    shares, alone = ago(0), ago(60, alone=True)
    assert shares.kept([group(alone)], BUNDLE, [node("a")]) == {"a"}
    assert not shares.is_behind([group(alone)], BUNDLE)
    other = ago(0, alone=True)  # which can give it what it gets itself
    assert other.is_behind([group(alone)], BUNDLE)
    assert other.kept([group(alone)], BUNDLE, [node("a")]) == set()


def test_no_host_runs_empty_for_one_that_comes_later_or_needs_no_more() -> None:
    nodes = [node("a")]
    assert ago(60).kept([group(ago(0), bundle=WHOLE)], BUNDLE, nodes) == set()
    assert ago(0, scored=True).kept([group(ago(60), bundle=WHOLE)], BUNDLE, nodes) == set()
    assert ago(0).kept([group(ago(60))], BUNDLE, nodes) == set()


def test_each_that_needs_more_has_a_host_and_those_that_fit_on_none_have_not() -> None:
    larger = [group(ago(60 + number), bundle=WHOLE) for number in range(2)]
    assert ago(0).kept(larger, BUNDLE, [node("a"), node("b"), node("c")]) == {"a", "b"}
    other = [group(ago(60, accelerator="H100"), bundle=WHOLE)]
    assert ago(0).kept(other, BUNDLE, [node("a"), node("b", "H100")]) == {"b"}


def test_no_host_runs_empty_where_others_than_our_pods_are_at_work() -> None:
    larger = group(ago(60), bundle=WHOLE)
    half = [group(ago(99), state="CREATED", node="a") for _ in range(4)]
    assert ago(0).kept([larger], BUNDLE, [node("a", GPU=4.0)]) == set()
    assert ago(0).kept([larger, *half], BUNDLE, [node("a", GPU=4.0, CPU=32.0)]) == {"a"}
