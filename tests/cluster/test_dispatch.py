"""The dispatcher on a real cluster: each submission once, whoever starts it; several at the same time."""

import json

import pytest
from cluster.scene import Scene, wait_until

from lowbit_ray.dispatch.jobs import Job, RayJobs
from lowbit_ray.lease import attempts
from lowbit_ray.recheck import recheck
from lowbit_ray.rules import load_rules
from lowbit_ray.stages.context import step_times

pytestmark = pytest.mark.timeout(300)


def test_two_dispatchers_at_once_evaluate_each_submission_once(scene: Scene) -> None:
    submissions = [scene.submit(f"m{number}", participant=f"p{number % 3}") for number in range(6)]
    with scene.dispatcher(), scene.dispatcher():
        records = scene.wait_for(submissions)
        wait_until(lambda: scene.arena.ledger.keys("dispatch/") == [], scene.story)
    assert {record.status for record in records} == {"done"}
    for submission in submissions:
        assert [lease.attempt for lease in attempts(scene.arena.ledger, submission.id)] == [0]
    scene.wait_until_idle()


def test_jobs_that_ended_long_ago_go_off_rays_list(scene: Scene) -> None:
    jobs = RayJobs(scene.cluster.dashboard)
    submission = scene.submit("forgotten")
    with scene.dispatcher():
        scene.wait_for([submission])
    wait_until(lambda: jobs.look(submission.id, 0) != Job("active"), scene.story)
    assert jobs.forget() == 0
    assert jobs.look(submission.id, 0) is not None
    assert jobs.forget(0) > 0
    # Ray's own look after a job that has only just ended may put it back once
    wait_until(lambda: jobs.forget(0) == 0 and jobs.look(submission.id, 0) is None, scene.story)


def test_two_evaluations_run_at_the_same_time_on_two_pods(scene: Scene) -> None:
    submissions = [scene.submit(f"at once {number}") for number in range(2)]
    with scene.dispatcher():
        with scene.held(*submissions):
            wait_until(lambda: all(map(scene.on_pod, submissions)), scene.story)
        records = scene.wait_for(submissions)
    names = [
        next(step.name for step in step_times(scene.arena.ledger, one.id) if step.name.startswith("timed-"))
        for one in submissions
    ]
    assert names[0] != names[1]
    for record in records:
        assert record.result is not None, record.error
        checks = recheck(json.loads(record.to_json()), load_rules(), speed_floor=record.result.speed_floor)
        assert {check.status for check in checks} == {"agrees"}
