"""The dispatcher on a real cluster: each submission once, whoever starts it; several at the same time."""

import json
from datetime import timedelta

import pytest
from cluster.scene import Scene

from lowbit_ray.lease import attempts
from lowbit_ray.recheck import recheck
from lowbit_ray.rules import load_rules
from lowbit_ray.stages.context import step_times

pytestmark = pytest.mark.timeout(300)


def test_two_dispatchers_at_once_evaluate_each_submission_once(scene: Scene) -> None:
    submissions = [scene.submit(f"m{number}", participant=f"p{number % 3}") for number in range(6)]
    with scene.dispatcher(), scene.dispatcher():
        records = scene.wait_for(submissions)
    assert {record.status for record in records} == {"done"}
    for submission in submissions:
        assert [lease.attempt for lease in attempts(scene.arena.ledger, submission.id)] == [0]
    assert scene.arena.ledger.keys("dispatch/") == []
    scene.wait_until_idle()


def test_two_evaluations_run_at_the_same_time_on_two_pods(scene: Scene) -> None:
    submissions = [scene.submit(f"at once {number}") for number in range(2)]
    with scene.dispatcher():
        records = scene.wait_for(submissions)
    stretches = []
    for submission in submissions:
        times = {step.name.split("-")[0]: step for step in step_times(scene.arena.ledger, submission.id)}
        anchor = times["anchor"]
        stretches.append((times["timed"].started_at, anchor.started_at + timedelta(seconds=anchor.seconds)))
    (start, end), (other_start, other_end) = stretches
    assert start < other_end
    assert other_start < end
    names = [
        next(step.name for step in step_times(scene.arena.ledger, one.id) if step.name.startswith("timed-"))
        for one in submissions
    ]
    assert names[0] != names[1]
    for record in records:
        assert record.result is not None, record.error
        checks = recheck(json.loads(record.to_json()), load_rules(), speed_floor=record.result.speed_floor)
        assert {check.status for check in checks} == {"agrees"}
