"""Who may talk to whom, by the network policies of a namespace: as Kubernetes defines them, without a network."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

NAMESPACE = "lowbit"
NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has of itself."""


@dataclass(frozen=True, slots=True)
class End:
    """A pod, by its labels, or an address that is none of a pod."""

    labels: tuple[tuple[str, str], ...] = ()
    namespace: str = NAMESPACE
    address: str = ""


def pod(namespace: str = NAMESPACE, /, **labels: str) -> End:
    return End(tuple(sorted(labels.items())), namespace)


def address(text: str) -> End:
    return End(namespace="", address=text)


def reaches(
    policies: list[dict[str, Any]], source: End, target: End, port: int, protocol: str = "TCP"
) -> bool:
    """A connection is let through where both ends allow it."""
    return _allows(policies, "Egress", source, target, port, protocol) and _allows(
        policies, "Ingress", target, source, port, protocol
    )


def _allows(policies: list[dict[str, Any]], way: str, own: End, other: End, port: int, protocol: str) -> bool:
    """A pod that no policy of this way chooses may talk to anybody; others to whom one of theirs names."""
    if own.namespace != NAMESPACE:
        return True
    specs = [document["spec"] for document in policies]
    binding = [
        spec
        for spec in specs
        if way in spec.get("policyTypes", ["Ingress"]) and _chooses(spec["podSelector"], dict(own.labels))
    ]
    rules = [rule for spec in binding for rule in spec.get(way.lower(), [])]
    peers = "from" if way == "Ingress" else "to"
    return not binding or any(
        _on_port(rule.get("ports"), port, protocol) and _among(rule.get(peers), other) for rule in rules
    )


def _on_port(ports: list[dict[str, Any]] | None, port: int, protocol: str) -> bool:
    return not ports or any(
        one.get("protocol", "TCP") == protocol
        and ("port" not in one or one["port"] <= port <= one.get("endPort", one["port"]))
        for one in ports
    )


def _among(peers: list[dict[str, Any]] | None, other: End) -> bool:
    return not peers or any(_is(peer, other) for peer in peers)


def _is(peer: dict[str, Any], other: End) -> bool:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        inside = [
            bool(other.address) and ipaddress.ip_address(other.address) in ipaddress.ip_network(text)
            for text in (block["cidr"], *block.get("except", []))
        ]
        return inside[0] and not any(inside[1:])
    if other.address:
        return False
    in_namespace = (
        _chooses(peer["namespaceSelector"], {NAME: other.namespace})
        if "namespaceSelector" in peer
        else other.namespace == NAMESPACE
    )
    return in_namespace and _chooses(peer.get("podSelector", {}), dict(other.labels))


def _chooses(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == text for key, text in selector.get("matchLabels", {}).items()) and all(
        {
            "In": labels.get(one["key"]) in one.get("values", []),
            "NotIn": labels.get(one["key"]) not in one.get("values", []),
            "Exists": one["key"] in labels,
            "DoesNotExist": one["key"] not in labels,
        }[one["operator"]]
        for one in selector.get("matchExpressions", [])
    )
