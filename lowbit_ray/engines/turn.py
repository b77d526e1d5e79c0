"""Whose turn it is when a pod is free.

Ray gives what is free to any of the groups that wait for it. So each group's name says how urgent its evaluation is
and since when it waits, and one that was given something looks whether another has to come first that could use it:
then it gives it back and asks again. All of them stay pending meanwhile, so that an autoscaler sees every one.

Ray also gives each GPU that is freed to whoever needs no more, so that one who needs several of one host, or a host for
itself, would wait for ever beside many who need one and share. For each who needs more, and has to come first, one host
therefore runs empty: the one on which the least is in use.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lowbit_ray.engines.nodes import ACCELERATOR, Node

__all__ = ["Turn"]

PREFIX = "lowbit-pod"
ANY = "any"
SLACK_S = 10.0
"""Who has waited so little longer is not let first: a GPU would idle for seconds until Ray asks that one again."""

ROUNDING = 1e-3
"""Ray keeps four decimals, and amounts are added up here."""

Groups = Collection[Mapping[str, Any]]
"""Of the cluster, as Ray's table has them."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a group waits for."""

    name: str
    bundle: Mapping[str, float]
    alone: bool
    accelerator: str


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of one evaluation among those that wait for a pod."""

    scored: bool
    """Scored submissions come before all others."""
    since: float = field(default_factory=time.time)
    """When it began, by the wall clock, which hosts share."""
    accelerator: str | None = None
    """Which one it needs, None for any."""
    alone: bool = True
    """Whether it needs a host for itself."""

    @property
    def rank(self) -> str:
        """Sorts: what is less comes first."""
        return self._rank(self.since)

    def _rank(self, since: float) -> str:
        return f"{PREFIX}-{'0' if self.scored else '1'}-{since:017.6f}"

    def group_name(self) -> str:
        """A name for one group of it; Ray wants each name once."""
        return f"{self.rank}-{secrets.token_hex(4)}-{'alone' if self.alone else 'beside'}-{self.accelerator or ANY}"

    def is_behind(self, groups: Groups, bundle: Mapping[str, float]) -> bool:
        """Whether one of the groups waits for no more than this bundle and has to get it first."""
        return any(
            not self._needs_more(other, bundle)
            and (self.accelerator is None or other.accelerator in (ANY, self.accelerator))
            for other in self._first(groups)
        )

    def kept(self, groups: Groups, bundle: Mapping[str, float], nodes: Iterable[Node]) -> set[str]:
        """Ids of the nodes that run empty for groups which need more than this bundle and have to come first.

        nodes: those that are alive and in service. What neither is free there nor one of our pods has does not count:
        nobody knows when it will be.
        """
        emptiest = sorted(nodes, key=lambda node: (self._in_use(groups, node), node.id))
        found: set[str] = set()
        for other in sorted(self._first(groups), key=lambda other: other.name):
            if not self._needs_more(other, bundle):
                continue  # it can have what is given to this one
            for node in emptiest:
                known = other.accelerator in (ANY, node.labels.get(ACCELERATOR))
                if node.id not in found and known and _fits(other.bundle, _in_the_end(groups, node)):
                    found.add(node.id)
                    break
        return found

    def _first(self, groups: Groups) -> Iterator[_Wanted]:
        """What those wait for that have to come first."""
        before = self._rank(self.since - SLACK_S)
        for group in groups:
            name = group["name"]
            if group["state"] == "PENDING" and name.startswith(PREFIX) and name < before:
                alone, accelerator = name.removeprefix(PREFIX).split("-", 5)[4:]
                yield _Wanted(name, group["bundles"][0], alone == "alone", accelerator)

    def _needs_more(self, other: _Wanted, bundle: Mapping[str, float]) -> bool:
        return not _fits(other.bundle, bundle) or (other.alone and not self.alone)

    def _in_use(self, groups: Groups, node: Node) -> float:
        """How much of the node other pods have, as a share of what they have most of."""
        bundles: list[Mapping[str, float]] = [
            group["bundles"][0] for group in _on(groups, node) if not group["name"].startswith(self.rank)
        ]
        return sum(
            max(amount / (node.total.get(name) or amount) for name, amount in bundle.items())
            for bundle in bundles
        )


def _on(groups: Groups, node: Node) -> Iterator[Mapping[str, Any]]:
    """Groups of our pods that have been given on a node."""
    for group in groups:
        given = group["state"] == "CREATED" and group["name"].startswith(PREFIX)
        if given and group["bundles_to_node_id"][0] == node.id:
            yield group


def _in_the_end(groups: Groups, node: Node) -> Mapping[str, float]:
    """What is free on a node once our pods there have ended."""
    free = dict(node.free)
    for group in _on(groups, node):
        for name, amount in group["bundles"][0].items():
            free[name] = free.get(name, 0.0) + amount
    return free


def _fits(bundle: Mapping[str, float], into: Mapping[str, float]) -> bool:
    return all(into.get(name, 0.0) >= amount - ROUNDING for name, amount in bundle.items())
