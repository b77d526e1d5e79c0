"""Who is next: scored first, fair between participants, oldest first; and how many are started."""

import itertools
import random

from lowbit_ray.dispatch.order import AtWork, Limits, Waiting, in_order, to_start
from lowbit_ray.tasks import PodShape

GPU = PodShape(tensor_parallel=1, cpus=8, memory_gib=64)
PAIR = PodShape(tensor_parallel=2, cpus=8, memory_gib=64)
NUMBERS = itertools.count()


def entry(participant: str, *, scored: bool = False) -> Waiting:
    number = next(NUMBERS)
    return Waiting(f"{number:016x}", participant, scored, f"{number:08d}")


def none(shape: PodShape) -> int:
    """No pods are known."""
    return 0


def names(ordered: list[Waiting]) -> list[str]:
    return [one.participant for one in ordered]


def work(participant: str, name: str = "", *, ahead: bool = False, scored: bool = True) -> AtWork:
    return AtWork(name or f"{next(NUMBERS):016x}", participant, scored, ahead)


def test_the_oldest_of_a_participant_is_first() -> None:
    queue = [entry("a") for _ in range(4)]
    assert in_order(reversed(queue), [], {}) == queue


def test_scored_submissions_come_before_dev_ones() -> None:
    dev, scored = entry("a"), entry("b", scored=True)
    assert in_order([dev, scored], [], {}) == [scored, dev]


def test_one_who_hands_in_many_does_not_hold_up_others() -> None:
    queue = [*(entry("many") for _ in range(5)), entry("one"), entry("two")]
    assert names(in_order(queue, [], {})) == ["many", "one", "two", "many", "many", "many", "many"]


def test_who_has_fewest_at_work_is_next() -> None:
    queue = [entry("busy"), entry("idle")]
    assert names(in_order(queue, [work("busy")], {})) == ["idle", "busy"]


def test_between_equals_the_one_served_longest_ago_is_next() -> None:
    queue = [entry("lately"), entry("long ago"), entry("never")]
    served = {"lately": "2026-02-02", "long ago": "2026-01-01"}
    assert names(in_order(queue, [], served)) == ["never", "long ago", "lately"]


def test_the_order_is_a_permutation_whatever_waits() -> None:
    draw = random.Random(1)
    queue = [entry(draw.choice("abcd"), scored=draw.random() < 0.3) for _ in range(300)]
    ordered = in_order(queue, [work(draw.choice("abcd")) for _ in range(9)], {})
    assert sorted(ordered, key=lambda one: one.arrival) == queue
    assert [one.scored for one in ordered] == sorted((one.scored for one in queue), reverse=True)


def test_no_participant_gets_two_ahead_of_one_who_has_none() -> None:
    draw = random.Random(2)
    queue = [entry(draw.choice("abcdefgh")) for _ in range(400)]
    ordered = in_order(queue, [], {})
    for place in range(len(ordered)):
        given = {name: names(ordered[:place]).count(name) for name in "abcdefgh"}
        least = min(given[one.participant] for one in ordered[place:])
        assert given[ordered[place].participant] == least


def test_only_a_few_are_started_ahead_of_their_pods() -> None:
    queue = [entry("a") for _ in range(100)]
    chosen = to_start(queue, [], {one.id: GPU for one in queue}, Limits(ahead=4), none)
    assert chosen == queue[:4]


def test_those_that_get_ready_already_count() -> None:
    queue = [entry("a") for _ in range(9)]
    ready = [work("a", ahead=True) for _ in range(3)]
    shapes = {one.id: GPU for one in [*queue, *ready]}
    assert to_start(queue, ready, shapes, Limits(ahead=4), none) == queue[:1]


def test_dev_ones_that_get_ready_keep_no_scored_one_from_starting() -> None:
    queue = [entry("a", scored=True) for _ in range(9)] + [entry("a") for _ in range(9)]
    ready = [work("a", ahead=True, scored=False) for _ in range(4)] + [work("a", ahead=True)]
    shapes = {one.id: GPU for one in [*queue, *ready]}
    assert to_start(queue, ready, shapes, Limits(ahead=4), none) == queue[:3]


def test_a_large_cluster_gets_more_of_them() -> None:
    queue = [entry("a") for _ in range(100)]
    busy = [work("a") for _ in range(64)]
    shapes = {one.id: GPU for one in [*queue, *busy]}
    assert to_start(queue, busy, shapes, Limits(ahead=4, share=0.25), none) == queue[:16]


def test_a_shape_that_waits_for_nodes_does_not_hold_up_another() -> None:
    pairs, singles = [entry("a") for _ in range(9)], [entry("a") for _ in range(2)]
    shapes = {one.id: PAIR for one in pairs} | {one.id: GPU for one in singles}
    assert to_start([*pairs, *singles], [], shapes, Limits(ahead=2), none) == [*pairs[:2], *singles]


def test_there_are_never_more_drivers_than_the_head_may_carry() -> None:
    queue = [entry("a") for _ in range(9)]
    busy = [work("a") for _ in range(7)]
    shapes = {one.id: GPU for one in [*queue, *busy]}
    assert to_start(queue, busy, shapes, Limits(ahead=4, most=8), none) == queue[:1]


def test_one_whose_task_is_unknown_is_not_started() -> None:
    queue = [entry("a"), entry("b")]
    assert to_start(queue, [], {queue[1].id: GPU}, Limits(), none) == queue[1:]


def test_pods_that_are_free_are_filled_at_once() -> None:
    queue = [entry("a") for _ in range(100)]
    busy = [work("a") for _ in range(6)]
    shapes = {one.id: GPU for one in [*queue, *busy]}
    assert to_start(queue, busy, shapes, Limits(ahead=4), lambda shape: 16) == queue[:14]
