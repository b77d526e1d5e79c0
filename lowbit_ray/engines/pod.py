"""A pod: a placement group of one host, and the actor on it that hosts one engine at a time.

Candidate and anchor run one after the other in the same bundle, so on the same silicon. The group is given back
when the evaluation ends, however it ends; with it goes the actor, and with the actor every process it started.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lowbit_ray.engines.actor import EngineActor, PodFacts
from lowbit_ray.errors import LowbitError, PodError
from lowbit_ray.tasks import PodShape

__all__ = ["Pod", "open_pod"]

T = TypeVar("T")
POLL_S = 1.0
STOP_S = 60.0


@dataclass(slots=True)
class Pod:
    """A pod in hand."""

    actor: Any
    """Handle of the EngineActor."""
    gpus: int
    facts: PodFacts
    opened: float
    """When it was given, by the monotonic clock."""

    @property
    def held_s(self) -> float:
        """Seconds since the pod was given."""
        return time.monotonic() - self.opened

    def call(
        self, method: str, *arguments: object, watch: Callable[[dict[str, Any]], None] | None = None
    ) -> Any:
        """Calls a method of the actor and waits for it; `watch` gets its progress about every second.

        An error raised there is raised here as itself. PodError where the actor or its node is lost.
        """
        reference = getattr(self.actor, method).remote(*arguments)
        try:
            while not ray.wait([reference], timeout=POLL_S)[0]:
                if watch is not None:
                    watch(ray.get(self.actor.progress.remote()))
            return ray.get(reference)
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


@contextlib.contextmanager
def open_pod(shape: PodShape) -> Iterator[Pod]:
    """Waits for a pod of this shape and holds it.

    Raises PodError, naming the resource that no node can give, when `shape.wait_s` has passed.
    """
    bundle = {"CPU": float(shape.cpus)}
    if shape.tensor_parallel:
        bundle["GPU"] = float(shape.tensor_parallel)
    selector = [{"ray.io/accelerator-type": shape.accelerator}] if shape.accelerator else None
    group = placement_group([bundle], strategy="STRICT_PACK", bundle_label_selector=selector)
    actor = None
    try:
        if not group.wait(shape.wait_s):
            raise PodError(
                f"no pod within {shape.wait_s:.0f} s",
                where="the task's pod",
                found=f"{_resources(ray.available_resources())} free of {_resources(ray.cluster_resources())}",
                expected=f"{_resources(bundle)} on one node"
                + (f" labelled {shape.accelerator}" if selector else ""),
                remedy="Add a node of that shape, or wait for the evaluations that hold it.",
            )
        opened = time.monotonic()
        actor = _start_actor(group, shape)
        yield Pod(actor=actor, gpus=shape.tensor_parallel, facts=ray.get(actor.facts.remote()), opened=opened)
    finally:
        if actor is not None:
            _stop_actor(actor)
        remove_placement_group(group)


def _start_actor(group: PlacementGroup, shape: PodShape) -> Any:
    return EngineActor.options(  # type: ignore[attr-defined]  # ray.remote gives the class its options
        num_cpus=shape.cpus,
        num_gpus=shape.tensor_parallel,
        max_restarts=0,
        max_task_retries=0,  # a half-measured number is never silently measured again
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
    ).remote()


def _stop_actor(actor: Any) -> None:
    """Stops the engine in good order, then the actor: its process group dies with it."""
    with contextlib.suppress(Exception):  # whatever state it is in, it is killed next
        ray.get(actor.stop.remote(), timeout=STOP_S)
    with contextlib.suppress(Exception):
        ray.kill(actor)


def _resources(amounts: dict[str, float]) -> str:
    return ", ".join(f"{amounts.get(name, 0):g} {name}" for name in ("GPU", "CPU"))
