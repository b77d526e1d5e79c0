"""Nodes of the cluster as placement sees them, and why none of them can give a pod.

A pod that may not share its host takes the whole of the resource `node:<address>` that every Ray node has by
itself, and one that may share takes a hundredth of it. So either one of the former is on a node, or up to a hundred
of the latter, on plain `ray start` nodes and without any setting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lowbit_ray.tasks import PodShape

__all__ = ["ACCELERATOR", "Node", "bundle_of", "closed_to", "pods_in", "share_of", "unmet"]

ACCELERATOR = "ray.io/accelerator-type"
"""The label that Ray and its autoscalers know accelerators by."""
GIB = 2**30
UNITS = {"GPU": "GPU", "CPU": "CPU", "memory": "GiB of memory"}


@dataclass(frozen=True, slots=True)
class Node:
    """One node that is alive."""

    id: str
    """Ray's own; a node that was restarted has another."""
    address: str
    labels: Mapping[str, str]
    total: Mapping[str, float]
    """By Ray's names: GPU, CPU, memory in bytes, node:<address>."""
    free: Mapping[str, float]

    @property
    def whole(self) -> str:
        """Name of the resource that stands for the node as a whole."""
        return next(
            (name for name in self.total if name.startswith("node:") and not name.startswith("node:__")),
            f"node:{self.address}",
        )

    @property
    def name(self) -> str:
        """Short, for people: address and the beginning of the id."""
        return f"{self.address} ({self.id[:8]})"


def bundle_of(shape: PodShape) -> dict[str, float]:
    """What Ray is asked for."""
    bundle = {"CPU": float(shape.cpus), "memory": shape.memory_gib * GIB}
    if shape.tensor_parallel:
        bundle["GPU"] = float(shape.tensor_parallel)
    return bundle


def share_of(shape: PodShape) -> float:
    """How much of `node:<address>` a pod takes."""
    return 0.01 if shape.may_share_host else 1.0


def pods_in(shape: PodShape, nodes: Iterable[Node]) -> int:
    """How many pods of this shape the nodes hold at a time, as if nothing else ran there."""
    return sum(_pods_on(shape, node) for node in nodes)


def _pods_on(shape: PodShape, node: Node) -> int:
    if shape.accelerator and node.labels.get(ACCELERATOR) != shape.accelerator:
        return 0
    fit = min(int(node.total.get(name, 0.0) // amount) for name, amount in bundle_of(shape).items())
    return fit if shape.may_share_host else min(fit, 1)


def closed_to(shape: PodShape, nodes: Iterable[Node]) -> set[str]:
    """Ids of nodes on which another pod is that this one, or that itself, may not share with."""
    return {node.id for node in nodes if node.free.get(node.whole, 0.0) < share_of(shape)}


def unmet(shape: PodShape, nodes: Iterable[Node], quarantined: Collection[str]) -> str:
    """What keeps a pod of this shape from every node; the nearest miss comes first.

    One reason a node is told: a wrong label, a resource it does not have at all, the quarantine, a pod that it
    would have to share with, a resource that others hold. Nodes without any GPU are left out where one is needed.
    """
    missed: dict[str, tuple[int, list[str]]] = {}
    for node in nodes:
        rank, reason = _miss(shape, node, quarantined)
        if rank:
            missed.setdefault(reason, (rank, []))[1].append(node.name)
    if not missed:
        return "no node has the GPUs" if shape.tensor_parallel else "there is no node"
    ordered = sorted(missed.items(), key=lambda entry: -entry[1][0])
    return "; ".join(f"{reason} on {_names(names)}" for reason, (_, names) in ordered)


def _miss(shape: PodShape, node: Node, quarantined: Collection[str]) -> tuple[int, str]:
    """How near the node comes (0 is not worth telling), and what it lacks."""
    bundle = bundle_of(shape)
    if "GPU" in bundle and not node.total.get("GPU"):
        return 0, ""
    label = node.labels.get(ACCELERATOR)
    if shape.accelerator and label != shape.accelerator:
        return 1, f"label {label or 'missing'} in the place of {shape.accelerator}"
    for name, amount in bundle.items():
        if node.total.get(name, 0.0) < amount:
            return 2, f"only {_amount(name, node.total)} of the {_amount(name, bundle)} needed"
    if node.id in quarantined:
        return 3, "quarantine"
    if node.id in closed_to(shape, [node]):
        return 4, "a pod that may not share its host" if shape.may_share_host else "another pod"
    for name, amount in bundle.items():
        if node.free.get(name, 0.0) < amount:
            return 5, f"{_amount(name, node.free)} free of the {_amount(name, bundle)} needed"
    return 6, "free, but not given yet,"


def _amount(name: str, amounts: Mapping[str, float]) -> str:
    value = amounts.get(name, 0.0) / (GIB if name == "memory" else 1)
    return f"{value:.4g} {UNITS[name]}"


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
