"""A pod: a place on one host, and the actor on it that hosts one engine at a time.

Candidate and anchor run one after the other in the same bundle, so on the same silicon. The place is given back
when the evaluation ends, however it ends; with it goes the actor, and with the actor every process it started. A
device that is not clean before or after puts its node into quarantine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lowbit_ray.engines.actor import EngineActor, PodFacts
from lowbit_ray.engines.placement import Place, find_place
from lowbit_ray.engines.quarantine import Quarantined, quarantine, quarantined_nodes
from lowbit_ray.engines.turn import Turn
from lowbit_ray.errors import DirtyDeviceError, LowbitError, PodError
from lowbit_ray.ledger import Ledger
from lowbit_ray.metrics import count_dirty_device
from lowbit_ray.submission import now
from lowbit_ray.tasks import PodShape

__all__ = ["Pod", "open_pod"]

T = TypeVar("T")
POLL_S = 1.0
STOP_S = 120.0
"""An engine's end and the wait for its memory."""
START_S = 180.0
"""The actor's process, and the look at its devices."""
SETTLE_S = 60.0
"""How long a device may take until the memory of what ended is free."""
HUNG_S = 600.0
"""How long a node is left alone on which an actor did not answer in time."""
CALL_S = 1800.0
"""Longest that any call on a pod may take that is not given a time of its own."""


@dataclass(slots=True)
class Pod:
    """A pod in hand."""

    actor: Any
    """Handle of the EngineActor."""
    gpus: int
    facts: PodFacts
    opened: float
    """When it was given, by the monotonic clock."""
    node: str
    """Ray's id of its node."""

    @property
    def held_s(self) -> float:
        """Seconds since the pod was given."""
        return time.monotonic() - self.opened

    @property
    def busy_s(self) -> float:
        """Seconds in which an engine on it was answering; 0 where it cannot say any more."""
        with contextlib.suppress(RayError):
            return float(ray.get(self.actor.busy_s.remote(), timeout=60))
        return 0.0

    def call(
        self,
        method: str,
        *arguments: object,
        watch: Callable[[dict[str, Any]], None] | None = None,
        limit_s: float = CALL_S,
    ) -> Any:
        """Calls a method of the actor and waits for it; `watch` gets its progress about every second, and may raise.

        An error raised there is raised here as itself. PodError where the actor or its node is lost, or has not
        answered within `limit_s`.
        """
        reference = getattr(self.actor, method).remote(*arguments)
        deadline = time.monotonic() + limit_s
        try:
            while not ray.wait([reference], timeout=POLL_S)[0]:
                if time.monotonic() > deadline:
                    raise _hangs(method, limit_s)
                if watch is not None:
                    watch(ray.get(self.actor.progress.remote(), timeout=limit_s))
            return ray.get(reference)
        except GetTimeoutError:
            raise _hangs(method, limit_s) from None
        except RayTaskError as error:
            if isinstance(error.cause, LowbitError):
                raise error.cause from None  # the actor's traceback is in its own log
            raise
        except RayActorError as error:
            raise PodError(
                "the pod was lost",
                where=method,
                found=str(error).partition("\n")[0],
                remedy="It is tried again.",
            ) from None


def _hangs(method: str, limit_s: float) -> PodError:
    return PodError(
        "the pod does not answer",
        where=method,
        found=f"nothing within {limit_s:.0f} s",
        remedy="It is tried again; look at the devices of its host.",
    )


@contextlib.contextmanager
def open_pod(
    shape: PodShape,
    *,
    device: Literal["cuda", "cpu"],
    ledger: Ledger,
    found_by: str,
    waiting: Callable[[str], None],
    scored: bool = False,
    since: float | None = None,
    settle_s: float = SETTLE_S,
) -> Iterator[Pod]:
    """Waits for a pod of this shape and holds it.

    `device` is what the engines run on: tests give CPU engines pods with GPUs that do not exist. Nodes in the
    ledger's quarantine are avoided; `found_by` is noted where a node is put there. `waiting` is told what is
    missing while there is no pod, and may raise. Pods go to `scored` submissions first, then to who has been at it the
    longest, `since` by the wall clock. A device gets `settle_s` until it has to be clean.

    Raises NoPodError, naming the resource that no node can give, when `shape.wait_s` has passed; DirtyDeviceError
    where a device is not clean between two engines.
    """
    place, actor, facts = _clean_place(
        shape,
        lambda place: _start_actor(place, shape, device, settle_s),
        ledger,
        found_by,
        waiting,
        Turn(scored, since or time.time(), shape.accelerator, alone=not shape.may_share_host),
    )
    opened = time.monotonic()
    try:
        yield Pod(actor=actor, gpus=shape.tensor_parallel, facts=facts, opened=opened, node=place.node.id)
    except DirtyDeviceError as error:
        _take_out(place, error, ledger, found_by)
        raise
    finally:
        _stop_actor(actor, lambda error: _take_out(place, error, ledger, found_by))
        place.give_back()


def _clean_place(
    shape: PodShape,
    start: Callable[[Place], Any],
    ledger: Ledger,
    found_by: str,
    waiting: Callable[[str], None],
    turn: Turn,
) -> tuple[Place, Any, PodFacts]:
    """A place whose actor is up and whose devices are clean, before the deadline.

    A node that dies meanwhile, is not clean or whose devices do not answer is not the evaluation's end: another
    one is looked for, and one that hung (a driver may never answer about a lost GPU) is left alone for a while.
    """
    deadline, hung = time.monotonic() + shape.wait_s, dict[str, float]()
    while True:
        place = find_place(
            shape,
            deadline=deadline,
            quarantined=lambda: (
                quarantined_nodes(ledger) | {n for n, end in hung.items() if end > time.monotonic()}
            ),
            waiting=waiting,
            turn=turn,
        )
        actor = None
        try:
            actor = start(place)
            return place, actor, ray.get(actor.clean_facts.remote(), timeout=START_S)
        except BaseException as error:
            if actor is not None:
                ray.kill(actor)
            place.give_back()
            fault = error.cause if isinstance(error, RayTaskError) else error
            if isinstance(fault, PodError):
                _take_out(place, fault, ledger, found_by)
            elif isinstance(error, RayTaskError) or not isinstance(error, RayError):
                raise
            elif time.monotonic() > deadline:
                raise PodError("no pod came up", where=place.node.name, found=fault) from None
            elif isinstance(error, GetTimeoutError):
                hung[place.node.id] = time.monotonic() + HUNG_S
            waiting(f"another node, as {place.node.name} is out: {str(fault).partition(chr(10))[0]}")


def _start_actor(place: Place, shape: PodShape, device: Literal["cuda", "cpu"], settle_s: float) -> Any:
    return EngineActor.options(  # type: ignore[attr-defined]  # ray.remote gives the class its options
        num_cpus=shape.cpus,
        num_gpus=shape.tensor_parallel,
        max_restarts=0,
        max_task_retries=0,  # a half-measured number is never silently measured again
        scheduling_strategy=PlacementGroupSchedulingStrategy(place.group, placement_group_bundle_index=0),
    ).remote(device, settle_s)


def _stop_actor(actor: Any, dirty: Callable[[DirtyDeviceError], None]) -> None:
    """Stops the engine in good order, then the actor: its process group dies with it."""
    try:
        ray.get(actor.stop.remote(), timeout=STOP_S)
    except RayTaskError as error:
        if isinstance(error.cause, DirtyDeviceError):
            dirty(error.cause)
    except Exception:  # noqa: S110  # whatever state it is in, it is killed next
        pass
    with contextlib.suppress(Exception):  # the cluster itself may be gone
        ray.kill(actor)


def _take_out(place: Place, error: PodError, ledger: Ledger, found_by: str) -> None:
    """Puts the node into quarantine, once."""
    found = Quarantined(
        node=place.node.id,
        address=place.node.address,
        reason=f"{error.where}: {error.summary}, {error.found}",
        found_by=found_by,
        at=now(),
    )
    if quarantine(ledger, found):
        count_dirty_device()
