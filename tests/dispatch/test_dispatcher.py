"""One look after another at a real ledger, beside a job server that only remembers: what is started, and when again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lowbit_ray.dispatch.dispatcher import Dispatcher
from lowbit_ray.dispatch.jobs import Job
from lowbit_ray.dispatch.order import Limits, positions
from lowbit_ray.dispatch.tickets import Backoff, read_all
from lowbit_ray.engines.nodes import Node
from lowbit_ray.errors import ConfigError, InfraError
from lowbit_ray.index import Index, accept
from lowbit_ray.lease import Lease, LeaseHeld, hold, key, record_attempt
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.migration import SCHEMA
from lowbit_ray.submission import Address, Submission, new_id
from lowbit_ray.tasks import PodShape

SHAPE = PodShape(tensor_parallel=1, cpus=8, memory_gib=64)
START = datetime(2026, 1, 1, tzinfo=UTC)
AT_ONCE = Backoff(first_s=0, busy_s=0, faults=3)


@dataclass
class JobServer:
    """Ray's, as far as the dispatcher sees it."""

    jobs: dict[str, Job] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    away: bool = False
    machines: list[Node] = field(default_factory=list)

    def start(self, submission: str, job: int, labels: dict[str, str]) -> None:
        self._answer()
        self.jobs.setdefault(f"{submission}-{job}", Job("active"))

    def look(self, submission: str, job: int) -> Job | None:
        self._answer()
        return self.jobs.get(f"{submission}-{job}")

    def stop(self, submission: str, job: int) -> None:
        self._answer()
        self.stopped.append(f"{submission}-{job}")

    def nodes(self) -> list[Node]:
        return self.machines

    def end(
        self, name: str, *, busy: bool = False, message: str = "the driver was killed (signal 9)"
    ) -> None:
        self.jobs[name] = Job("ended", busy=busy, message=message)

    def _answer(self) -> None:
        if self.away:
            raise InfraError("Ray's job server did not answer")


@dataclass
class Scene:
    """A ledger, a job server, and dispatchers."""

    ledger: FolderLedger
    record: bytes
    """Of some finished submission."""
    server: JobServer = field(default_factory=JobServer)
    abandoned: dict[str, str] = field(default_factory=dict)

    def dispatcher(self, *, limits: Limits = Limits(ahead=2), backoff: Backoff = AT_ONCE) -> Dispatcher:  # noqa: B008
        return Dispatcher(
            self.ledger, self.server, shape_of=shape_of, abandon=self.abandon, limits=limits, backoff=backoff
        )

    def submit(self, count: int = 1, **changes: Any) -> list[str]:
        names = []
        for _ in range(count):
            fields: dict[str, Any] = {
                "id": new_id(),
                "participant": "somebody",
                "task_id": "any",
                "checkpoint": Address(kind="folder", location="/anywhere"),
                "method": "m",
                "created_at": START + timedelta(seconds=len(self.ledger.keys("submissions/"))),
            }
            submission = Submission.model_validate(fields | changes)
            assert accept(self.ledger, submission)
            names.append(submission.id)
        return names

    def finish(self, name: str) -> None:
        assert self.ledger.create(
            f"submissions/{name}/record.json", self.record.replace(b"a553eefea2d24359", name.encode())
        )

    def abandon(self, name: str, reason: str) -> None:
        self.abandoned[name] = reason
        self.finish(name)


def shape_of(task: str) -> PodShape:
    if task == "unknown":
        raise ConfigError("no such task", found=task)
    return SHAPE


@pytest.fixture
def scene(tmp_path: Path, fixtures: Path) -> Scene:
    record = json.loads((fixtures / "record-a553eefea2d24359.json").read_text()) | {"schema_version": SCHEMA}
    return Scene(FolderLedger(tmp_path), json.dumps(record).encode())


def test_the_first_few_are_started_and_the_others_wait(scene: Scene) -> None:
    names = scene.submit(5)
    status = scene.dispatcher().look()
    assert list(status.started) == names[:2]
    assert list(status.queue) == names[2:]
    assert list(scene.server.jobs) == [f"{name}-0" for name in names[:2]]


def test_pods_that_are_free_get_their_drivers_at_once(scene: Scene) -> None:
    scene.server.machines = [Node("n", "10.0.0.1", {}, {"GPU": 8, "CPU": 64, "memory": 2**41}, {})]
    names = scene.submit(20)
    dispatcher = scene.dispatcher(limits=Limits(ahead=2))
    assert len(dispatcher.look().started) == 3  # its pods may not share a host
    with hold(scene.ledger, names[0]) as tenure:
        tenure.tell_pod("held")
        assert len(dispatcher.look().started) == 0


def test_what_is_at_work_is_not_started_again(scene: Scene) -> None:
    scene.submit(1)
    dispatcher = scene.dispatcher()
    dispatcher.look()
    assert dispatcher.look().started == ()
    assert len(scene.server.jobs) == 1


def test_one_that_got_its_pod_makes_room_for_the_next(scene: Scene) -> None:
    names = scene.submit(3)
    dispatcher = scene.dispatcher(limits=Limits(ahead=1))
    dispatcher.look()
    with hold(scene.ledger, names[0]) as tenure:
        assert dispatcher.look().started == ()
        tenure.tell_pod("held")
        status = dispatcher.look()
        assert status.on_pod == (names[0],)
        assert status.started == (names[1],)


def test_a_finished_one_is_let_go_of(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher()
    dispatcher.look()
    scene.finish(name)
    scene.server.end(f"{name}-0", message="the driver ended with exit code 0")
    status = dispatcher.look()
    assert (status.queue, status.ahead, status.on_pod) == ((), (), ())
    assert read_all(scene.ledger) == {}


def test_a_verdict_that_the_index_has_not_seen_yet_is_no_fault(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher()
    dispatcher.look()
    scene.server.end(f"{name}-0")
    look = scene.server.look

    def late(submission: str, job: int) -> Job | None:
        scene.finish(name)
        return look(submission, job)

    scene.server.look = late  # type: ignore[method-assign]
    assert dispatcher.look().delayed == {}
    assert read_all(scene.ledger) == {}


def test_a_killed_driver_is_started_again_after_a_while(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher(backoff=Backoff(first_s=3600))
    dispatcher.look()
    scene.server.end(f"{name}-0")
    assert dispatcher.look().started == ()
    status = dispatcher.look()
    assert status.started == ()
    assert "signal 9" in status.delayed[name]
    assert scene.dispatcher().look().started == ()  # another dispatcher knows of it, too
    [held] = read_all(scene.ledger).values()
    assert held.ticket.due_at is not None
    assert timedelta(minutes=14) < held.ticket.due_at - datetime.now(UTC) < timedelta(minutes=16)


def test_waits_grow_and_are_bounded() -> None:
    backoff = Backoff(first_s=10, factor=3, most_s=200)
    assert [backoff.delay_s(faults) for faults in (1, 2, 3, 4, 5)] == [10, 30, 90, 200, 200]


def test_after_so_many_faults_of_ours_it_is_given_up_with_the_reason(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher()
    for job in range(3):
        assert scene.abandoned == {}
        while f"{name}-{job}" not in scene.server.jobs:
            dispatcher.look()
        scene.server.end(f"{name}-{job}")
        dispatcher.look()
    assert "3 faults" in scene.abandoned[name]
    assert "signal 9" in scene.abandoned[name]
    assert read_all(scene.ledger) == {}
    assert dispatcher.look().started == ()


def fail(scene: Scene, dispatcher: Dispatcher, names: list[str], jobs: int) -> None:
    """Each of them fails so many times more."""
    for _ in range(jobs):
        dispatcher.look()
        for name in list(scene.server.jobs):
            if name.split("-")[0] in names and scene.server.jobs[name].status == "active":
                scene.server.end(name)
        dispatcher.look()


def test_while_all_fail_nothing_is_given_up(scene: Scene) -> None:
    names = scene.submit(2)
    dispatcher = scene.dispatcher()
    fail(scene, dispatcher, names, 9)
    assert scene.abandoned == {}
    [well] = scene.submit()
    with hold(scene.ledger, well):
        scene.finish(well)
    fail(scene, dispatcher, names, 1)
    assert sorted(scene.abandoned) == sorted(names)


def test_what_an_attempt_said_of_itself_is_the_reason(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher(backoff=Backoff(first_s=3600))
    dispatcher.look()
    lease = Lease(
        holder="there:1:x", attempt=0, renewed_at=START, released=True, ours=True, reason="no node left"
    )
    record_attempt(scene.ledger, name, lease)
    scene.server.end(f"{name}-0", message="the driver ended with exit code 1")
    assert dispatcher.look().delayed == {name: "no node left"}


def test_a_driver_that_found_no_pod_is_no_fault(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher()
    for job in range(5):
        while f"{name}-{job}" not in scene.server.jobs:
            dispatcher.look()
        scene.server.end(f"{name}-{job}", busy=True)
        dispatcher.look()
    assert scene.abandoned == {}
    [held] = read_all(scene.ledger).values()
    assert held.ticket.faults == 0


def test_a_job_that_was_lost_with_its_head_is_started_again_under_its_name(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher()
    dispatcher.look()
    scene.server.jobs.clear()
    dispatcher.look()
    assert list(scene.server.jobs) == [f"{name}-0"]
    [held] = read_all(scene.ledger).values()
    assert held.ticket.faults == 0


def test_while_the_last_holder_may_live_nobody_else_is_started(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher()
    dispatcher.look()
    lease = Lease(holder="elsewhere:1:x", attempt=0, renewed_at=datetime.now(UTC), pod="held")
    assert scene.ledger.create(key(name), lease.model_dump_json().encode())
    scene.server.jobs.clear()
    status = dispatcher.look()
    assert scene.server.jobs == {}
    assert status.on_pod == (name,)


def test_what_somebody_evaluates_by_hand_is_left_to_him(scene: Scene) -> None:
    [name] = scene.submit()
    with hold(scene.ledger, name):
        status = scene.dispatcher().look()
    assert status.started == ()
    assert status.ahead == (name,)


def test_a_cancelled_one_is_stopped(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher()
    dispatcher.look()
    cancelled = b'{"by": "somebody", "at": "2026-01-01T00:00:00Z"}'
    assert scene.ledger.create(f"submissions/{name}/cancelled.json", cancelled)
    dispatcher.look()
    assert scene.server.stopped == [f"{name}-0"]
    scene.server.end(f"{name}-0")
    status = dispatcher.look()
    assert (status.ahead, status.started) == ((), ())
    assert read_all(scene.ledger) == {}


def test_a_cancelled_one_that_waits_is_never_started(scene: Scene) -> None:
    [name] = scene.submit()
    cancelled = b'{"by": "somebody", "at": "2026-01-01T00:00:00Z"}'
    assert scene.ledger.create(f"submissions/{name}/cancelled.json", cancelled)
    status = scene.dispatcher().look()
    assert (status.queue, status.started) == ((), ())


def test_an_unknown_task_blocks_nobody_else(scene: Scene) -> None:
    [unknown] = scene.submit(task_id="unknown")
    [known] = scene.submit()
    status = scene.dispatcher(limits=Limits(ahead=1)).look()
    assert status.started == (known,)
    assert "no such task" in status.blocked[unknown]


def test_a_ticket_of_another_release_stops_nobody_else(scene: Scene) -> None:
    odd, good = scene.submit(2)
    assert scene.ledger.create(f"dispatch/{odd}.json", b'{"since": "2026-01-01T00:00:00Z", "later": 1}')
    status = scene.dispatcher().look()
    assert status.started == (good,)
    assert status.queue == ()
    assert "its ticket" in status.blocked[odd]


def test_one_whose_record_is_of_another_release_is_not_evaluated_again(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher()
    dispatcher.look()
    assert scene.ledger.create(f"submissions/{name}/record.json", b'{"schema_version": 999}')
    scene.server.end(f"{name}-0")
    for _ in range(3):
        status = dispatcher.look()
    assert list(scene.server.jobs) == [f"{name}-0"]
    assert "999" in status.blocked[name]


def test_a_dispatcher_killed_before_the_job_was_started_is_made_up_for(scene: Scene) -> None:
    [name] = scene.submit()
    scene.server.away = True
    with pytest.raises(InfraError):
        scene.dispatcher().look()
    assert len(read_all(scene.ledger)) == 1
    scene.server.away = False
    scene.dispatcher().look()
    assert list(scene.server.jobs) == [f"{name}-0"]


def test_two_dispatchers_in_turn_start_each_once(scene: Scene) -> None:
    names = scene.submit(4)
    one, two = scene.dispatcher(limits=Limits(ahead=9)), scene.dispatcher(limits=Limits(ahead=9))
    assert len(one.look().started) == 4
    assert two.look().started == ()
    for name in names:
        scene.server.end(f"{name}-0")
    for _ in range(2):
        two.look()
        one.look()
    assert sorted(scene.server.jobs) == sorted(f"{name}-{job}" for name in names for job in (0, 1))
    assert {held.ticket.faults for held in read_all(scene.ledger).values()} == {1}


def test_one_that_somebody_took_over_is_not_given_up(scene: Scene) -> None:
    [name] = scene.submit()
    dispatcher = scene.dispatcher(backoff=Backoff(first_s=0, faults=1))
    dispatcher.look()
    scene.server.end(f"{name}-0")

    def taken(name: str, reason: str) -> None:
        raise LeaseHeld("the submission is being evaluated", where=name)

    dispatcher._abandon = taken
    status = dispatcher.look()
    assert status.given_up == ()
    assert name in read_all(scene.ledger)


def test_places_in_the_queue_are_the_order_of_starting(scene: Scene) -> None:
    names = scene.submit(4)
    [scored] = scene.submit(split="test")
    index = Index(scene.ledger)
    index.refresh()
    places = positions(index.all())
    assert places == {scored: 1} | {name: place for place, name in enumerate(names, start=2)}
    started: list[str] = []
    dispatcher = scene.dispatcher(limits=Limits(ahead=1, most=1))
    for _ in range(12):
        started += dispatcher.look().started
        for name in started:
            if scene.ledger.read(f"submissions/{name}/record.json") is None:
                scene.finish(name)
    assert started == [scored, *names]
