"""What befalls a cluster, one thing at a time: every evaluation ends with the score that it has undisturbed."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from cluster.scene import GPUS, Scene, wait_until

from lowbit_ray.dispatch.jobs import RayJobs
from lowbit_ray.progress import read_progress
from lowbit_ray.records import Record
from lowbit_ray.submission import Submission

pytestmark = pytest.mark.timeout(400)
START_S = 10
"""A pod is held some seconds before its first step."""


def check(scene: Scene, submission: Submission, record: Record) -> None:
    """The right score, measured on one pod, nothing charged that was not used, nothing left."""
    assert record.status == "done", record.error
    assert scene.measured(record) == scene.undisturbed
    assert scene.pods_of(submission), "no pod has the pair of timed runs and the cap"
    at_most = (record.updated_at - scene.began(submission.id)).total_seconds() + START_S
    assert 0 < record.charged_hours * 3600 <= at_most  # one GPU at a time, so no second is charged twice
    scene.wait_until_idle()


def kill_driver(scene: Scene, submission: Submission) -> None:
    scene.driver(submission).send_signal(signal.SIGKILL)


def kill_actor(scene: Scene, submission: Submission) -> None:
    [actor] = scene.actors()
    actor.send_signal(signal.SIGKILL)


def kill_engine(scene: Scene, submission: Submission) -> None:
    """The anchor's while it is timed; the candidate's last one where the anchor had been asked all by then."""

    def timed() -> bool:
        return bool(scene.arena.ledger.keys(f"submissions/{submission.id}/stages/anchor"))

    while not timed():
        for engine in scene.engines("sources"):
            with contextlib.suppress(psutil.Error):
                engine.send_signal(signal.SIGKILL)
            if wait_until(lambda: scene.attempts(submission) or timed(), scene.story) and not timed():
                return
        time.sleep(0.1)
    wait_until(lambda: scene.engines(submission.id), scene.story)[0].send_signal(signal.SIGKILL)


@pytest.mark.parametrize("strike", [kill_driver, kill_actor, kill_engine], ids=lambda strike: strike.__name__)
@pytest.mark.parametrize("step", ["timed", "anchor"])
def test_what_is_killed_is_made_up_for(
    scene: Scene, strike: Callable[[Scene, Submission], None], step: str
) -> None:
    submission = scene.submit(f"{strike.__name__} after {step}")
    with scene.dispatcher():
        with scene.held(submission):
            scene.wait_for_step(submission, step)
            strike(scene, submission)
        [record] = scene.wait_for([submission])
    assert scene.faults(submission) == [True, False]
    assert scene.attempt_of(submission, "build") == 0
    check(scene, submission, record)


def test_what_was_timed_is_not_timed_again_for_the_sake_of_quality(scene: Scene) -> None:
    submission = scene.submit("quality left")
    node = scene.cluster.nodes[-1]
    with scene.dispatcher():
        scene.wait_for_step(submission, "efficiency")
        node.kill()
        scene.cluster.nodes.remove(node)
        scene.cluster.add_node(GPUS)
        [record] = scene.wait_for([submission])
    assert len(scene.pods_of(submission)) == 1
    assert scene.attempt_of(submission, "efficiency") == 0
    check(scene, submission, record)


def test_where_the_one_that_asks_the_anchor_dies_another_asks(scene: Scene) -> None:
    scene.forget_the_anchor()
    submissions = [scene.submit(f"anchor {number}") for number in range(2)]
    with scene.dispatcher():
        with scene.held(*submissions):
            [key] = wait_until(lambda: scene.arena.ledger.keys("tasks/fake/anchors/"), scene.story)[:1]
            assert key.endswith("claim.json")
            entry = scene.arena.ledger.read(key)
            assert entry is not None
            asking = next(one for one in submissions if one.id.encode() in entry.data)
            kill_driver(scene, asking)
        records = scene.wait_for(submissions)
    for submission, record in zip(submissions, records, strict=True):
        check(scene, submission, record)


def test_a_killed_dispatcher_leaves_its_evaluations_at_work(scene: Scene) -> None:
    submission = scene.submit("dispatcher")
    first = scene.start_dispatcher()
    scene.wait_for_step(submission, "build")
    first.kill()
    first.wait()
    with scene.dispatcher():
        [record] = scene.wait_for([submission])
    assert scene.faults(submission) == [False]
    check(scene, submission, record)


def test_a_lost_node_costs_a_pair_of_runs_and_no_more(scene: Scene) -> None:
    node = scene.cluster.nodes[-1]
    submission = scene.submit("node")
    with scene.dispatcher():
        with scene.held(submission):
            scene.wait_for_step(submission, "timed")
            node.kill()
            scene.cluster.nodes.remove(node)
        scene.cluster.add_node(GPUS)
        [record] = scene.wait_for([submission])
    assert scene.faults(submission) == [True, False]
    assert scene.attempt_of(submission, "build") == 0
    assert len(scene.pods_of(submission)) == 1
    check(scene, submission, record)
    assert (
        len(RayJobs(scene.cluster.dashboard).nodes()) == 2
    )  # head and new node: the dead one hides none of them


def test_a_drained_node_is_left_and_another_one_taken(scene: Scene) -> None:
    submission = scene.submit("drain")
    with scene.dispatcher():
        scene.wait_for_step(submission, "timed")
        scene.cluster.add_node(GPUS)
        scene.drain(scene.cluster.nodes[0], seconds=1)
        [record] = scene.wait_for([submission])
    assert scene.faults(submission) in ([True, False], [False])  # it may have ended before the node did
    check(scene, submission, record)


def test_a_store_that_is_away_for_a_while_loses_nothing(scene: Scene) -> None:
    submission = scene.submit("store")
    with scene.dispatcher():
        scene.wait_for_step(submission, "build")
        with scene.store_away():
            time.sleep(8)
        [record] = scene.wait_for([submission])
    assert scene.faults(submission) == [False]
    check(scene, submission, record)


def test_a_cancelled_evaluation_is_stopped_in_good_order_however_long_its_engine_takes(scene: Scene) -> None:
    submission = scene.submit("cancelled")
    with scene.dispatcher(), scene.held(submission):
        scene.wait_for_step(submission, "timed")
        for engine in wait_until(scene.engines, scene.story):
            with contextlib.suppress(psutil.Error):  # it was to end anyway
                engine.send_signal(signal.SIGSTOP)  # and hears no SIGTERM
        scene.cancel(submission)
        scene.wait_until_idle()
        wait_until(lambda: scene.arena.ledger.keys("dispatch/") == [], scene.story)
    assert scene.record(submission) is None
    assert scene.faults(submission) == [False]  # by no fault of ours


def test_an_evaluation_that_fails_again_and_again_is_given_up_for_free(scene: Scene) -> None:
    submission = scene.submit("hopeless")
    with scene.dispatcher("--faults", "2"), scene.held(submission):
        for _ in range(2):
            scene.driver(submission).send_signal(signal.SIGKILL)
            wait_until(lambda: not scene.processes("jobs.evaluate", submission.id), scene.story)
        [record] = scene.wait_for([submission])
    assert record.status == "failed"
    assert "given up after 2 faults of ours" in (record.error or "")
    assert record.charged_hours == 0
    scene.wait_until_idle()


def test_a_new_head_goes_on_where_the_lost_one_was(scene: Scene) -> None:
    submissions = [scene.submit(f"head {number}") for number in range(2)]
    first = scene.start_dispatcher()
    scene.wait_for_step(submissions[0], "timed")
    scene.cluster.kill_head()
    for node in scene.cluster.nodes:
        node.kill()
    scene.cluster.nodes.clear()
    first.kill()
    first.wait()
    scene.cluster.start_head()
    scene.cluster.add_node(GPUS)
    with scene.dispatcher():
        records = scene.wait_for(submissions)
    for submission, record in zip(submissions, records, strict=True):
        check(scene, submission, record)


@contextlib.contextmanager
def taken(scene: Scene, gpus: int) -> Iterator[None]:
    """So many GPUs are somebody else's until the block ends."""
    code = (
        "import sys, time, ray; ray.init(namespace='elsewhere'); "
        "from ray.util.placement_group import placement_group as group; "
        f"print('taken' if group([{{'GPU': {gpus}}}]).wait(60) else 'none', flush=True); time.sleep(600)"
    )
    log = scene.cluster.root / f"holder-of-{gpus}.log"
    holder = scene.cluster.run("-c", code, log=log)
    try:
        wait_until(lambda: "taken" in log.read_text(), log.read_text)
        yield
    finally:
        holder.kill()
        holder.wait()


def test_a_scored_submission_gets_the_next_pod(scene: Scene) -> None:
    """Four dev ones have waited for a pod before it comes, and one pod is free once all five wait."""

    def waits(submission: Submission) -> bool:
        progress = read_progress(scene.arena.ledger, submission.id)
        return progress is not None and progress.what.startswith("waiting for a pod: ")

    with taken(scene, GPUS - 1), scene.dispatcher():
        with taken(scene, 1):
            dev = [scene.submit(f"dev {number}", split="dev") for number in range(4)]
            wait_until(lambda: all(map(waits, dev)), scene.story)
            scored = scene.submit("scored", split="test")
            wait_until(lambda: waits(scored), scene.story)
        scene.wait_for([*dev, scored])
    assert scored.id == min([*dev, scored], key=lambda one: scene.began(one.id)).id


def test_nothing_is_left_of_any_of_it(scene: Scene) -> None:
    scene.wait_until_idle()
    code = (
        "import time, ray; ray.init(log_to_driver=False); ends = time.monotonic() + 60\n"
        f"while ray.available_resources().get('GPU') != {GPUS} and time.monotonic() < ends: time.sleep(0.2)\n"
        "print(ray.available_resources().get('GPU'))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env=scene.cluster.driver_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    ).stdout
    assert float(out) == GPUS
    assert not [one for one in psutil.process_iter() if "lowbit-engine" in one.name()]
