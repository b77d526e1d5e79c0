"""What the terminal of `lowbit serve` says of its evaluations."""

from datetime import UTC, datetime
from typing import Any

from lowbit_ray.dispatch.dispatcher import Status
from lowbit_ray.service.cluster import news


def status(**found: Any) -> Status:
    empty = {
        "queue": (),
        "ahead": (),
        "on_pod": (),
        "started": (),
        "delayed": {},
        "given_up": (),
        "blocked": {},
    }
    return Status.model_validate({"at": datetime.now(UTC)} | empty | found)


def test_an_evaluation_is_told_from_its_start_to_its_end_once() -> None:
    looks = [
        status(queue=("b",), started=("a",)),
        status(queue=("b",), on_pod=("a",)),
        status(queue=("b",), on_pod=("a",)),
        status(started=("b",)),
        status(on_pod=("b",)),
        status(),
    ]
    told = [list(news(before, now)) for before, now in zip([None, *looks], looks, strict=False)]
    assert told == [
        ["started a"],
        [],
        [],
        ["started b", "ended a: lowbit show a"],
        [],
        ["ended b: lowbit show b"],
    ]


def test_a_fault_is_told_with_its_reason_and_again_where_that_changes() -> None:
    looks = [
        status(on_pod=("a",)),
        status(delayed={"a": "no vLLM"}),
        status(delayed={"a": "no vLLM"}),
        status(delayed={"a": "no disk"}, blocked={"b": "no such task"}),
        status(given_up=("a",)),
    ]
    told = [list(news(before, now)) for before, now in zip([None, *looks], looks, strict=False)]
    assert told == [
        [],
        ["a waits after a fault of ours: no vLLM"],
        [],
        ["a waits after a fault of ours: no disk", "b cannot be started: no such task"],
        ["given up a, free of charge"],
    ]
