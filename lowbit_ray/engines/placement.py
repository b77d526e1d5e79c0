"""Finding a place for a pod: a placement group of one host, and the claim that keeps neighbours off it.

The group asks for the pod's resources on a node with the right label that is neither in quarantine nor closed by
another pod; while there is none it stays pending, so that an autoscaler sees it and starts a node. The claim is a
second group, on the node that the first one got, of the node's own resource (`nodes.py`): it is given at once or
not at all, and of two pods that reach a node at the same moment only one gets it; the other looks elsewhere.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from lowbit_ray.engines.nodes import ACCELERATOR, Node, bundle_of, closed_to, share_of, unmet
from lowbit_ray.engines.turn import Turn
from lowbit_ray.errors import NoPodError
from lowbit_ray.tasks import PodShape

__all__ = ["Place", "alive_nodes", "find_place"]

LOOK_S = 2.0
CLAIM_S = 5.0
SETTLE_S = 1.0
YIELDS = 5
"""How often a place is given back for another's turn: who does not take it by then cannot."""
YIELD_S = 2.0
"""Ray looks at each group that waits about once a second."""
KEPT_S = 20.0
"""How long a node that runs empty for somebody else is left alone before it is looked at again."""


@dataclass(frozen=True, slots=True)
class Place:
    """Resources in hand."""

    group: PlacementGroup
    claim: PlacementGroup
    node: Node

    def give_back(self) -> None:
        """Frees both; whatever runs in them is killed."""
        for group in (self.group, self.claim):
            with contextlib.suppress(Exception):  # the cluster itself may be gone
                remove_placement_group(group)


def alive_nodes() -> list[Node]:
    """The cluster's nodes, with what is free on each."""
    free = available_resources_per_node()
    return [
        Node(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            labels=node.get("Labels") or {},
            total=node["Resources"],
            free=free.get(node["NodeID"], {}),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def find_place(
    shape: PodShape,
    *,
    deadline: float,
    quarantined: Callable[[], Collection[str]],
    waiting: Callable[[str], None],
    turn: Turn,
) -> Place:
    """Waits until `deadline` (monotonic clock) for a place, and lets those go first whose turn it is.

    `waiting` is told about every two seconds what is missing; it may raise, which ends the wait. Raises NoPodError
    that names the resource which no node can give. A node that runs empty for somebody else's larger pod is avoided.
    """
    yields, kept, kept_until = YIELDS, frozenset[str](), 0.0
    while True:
        kept = kept if time.monotonic() < kept_until else frozenset()
        avoided = _avoided(shape, quarantined()) | kept
        group = placement_group(
            [bundle_of(shape)],
            strategy="STRICT_PACK",
            name=turn.group_name(),
            bundle_label_selector=[_selector(shape, avoided)],
        )
        place, behind = None, False
        try:
            while not group.wait(LOOK_S):
                out = quarantined()
                why = unmet(shape, alive_nodes(), out)
                if time.monotonic() > deadline:
                    raise _no_pod(shape, why)
                waiting(f"{why}; a node runs empty for a larger pod" if kept else why)
                if _avoided(shape, out) | kept != avoided or (kept and time.monotonic() > kept_until):
                    break  # a node was freed, closed or taken out of service: ask anew
            else:
                behind = yields > 0 and _is_behind(turn, shape)
                if not behind and (theirs := _kept(turn, shape, group, quarantined())):
                    kept, kept_until = kept | theirs, time.monotonic() + KEPT_S
                elif not behind and (place := _claimed(shape, group)) is not None:
                    return place
                yields -= behind
                if time.monotonic() > deadline:
                    raise _no_pod(shape, unmet(shape, alive_nodes(), quarantined()))
        finally:
            if place is None:
                remove_placement_group(group)
        if behind:
            waiting("another evaluation's turn")
            time.sleep(YIELD_S)


def _is_behind(turn: Turn, shape: PodShape) -> bool:
    """Whether somebody else's turn comes first, who has not got a place of his own a moment later."""
    for wait_s in (0.0, SETTLE_S):
        time.sleep(wait_s)
        if not turn.is_behind(placement_group_table().values(), bundle_of(shape)):
            return False
    return True


def _kept(turn: Turn, shape: PodShape, group: PlacementGroup, quarantined: Collection[str]) -> frozenset[str]:
    """The node that the group got, where it runs empty for somebody else who needs more; otherwise none."""
    nodes = [node for node in alive_nodes() if node.id not in quarantined]
    kept = turn.kept(placement_group_table().values(), bundle_of(shape), nodes)
    return frozenset(kept & {_node_of(group)})


def _node_of(group: PlacementGroup) -> str:
    """Id of the node of a group that was given; empty where that has died."""
    name: str = placement_group_table(group)["bundles_to_node_id"][0]
    return name


def _avoided(shape: PodShape, quarantined: Collection[str]) -> frozenset[str]:
    """Ids of nodes that the group must not get."""
    nodes = alive_nodes()
    alive = {node.id for node in nodes}
    return frozenset(closed_to(shape, nodes) | (set(quarantined) & alive))


def _selector(shape: PodShape, avoided: Collection[str]) -> dict[str, str]:
    selector = {ACCELERATOR: shape.accelerator} if shape.accelerator else {}
    if avoided:
        selector["ray.io/node-id"] = f"!in({','.join(sorted(avoided))})"
    return selector


def _claimed(shape: PodShape, group: PlacementGroup) -> Place | None:
    """The group with its node's claim; None where somebody else was quicker, or the node has died."""
    name = _node_of(group)
    node = next((node for node in alive_nodes() if node.id == name), None)
    if node is None:
        return None
    claim = placement_group(
        [{node.whole: share_of(shape)}], bundle_label_selector=[{"ray.io/node-id": node.id}]
    )
    given = False
    try:
        given = claim.wait(CLAIM_S)
    finally:
        if not given:
            remove_placement_group(claim)
    return Place(group, claim, node) if given else None


def _no_pod(shape: PodShape, why: str) -> NoPodError:
    bundle = bundle_of(shape)
    wanted = ", ".join(f"{bundle[name]:g} {name}" for name in ("GPU", "CPU") if name in bundle)
    label = f" labelled {shape.accelerator}" if shape.accelerator else ""
    alone = "" if shape.may_share_host else ", and no other pod there"
    return NoPodError(
        f"no pod within {shape.wait_s:.0f} s",
        where="the task's pod",
        found=why,
        expected=f"{wanted}, {shape.memory_gib:g} GiB of memory on one node{label}{alone}",
        remedy="Add a node of that shape, or wait for the evaluations that hold one.",
    )
