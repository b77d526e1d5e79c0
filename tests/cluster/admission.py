"""What the API server refuses of an object whose fields are all there: names, words, quantities, one of several.

`refused` gives each as `path: what`, as `shape.problems` does. KubeRay's own rules stand in kuberay_rules.py.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any

from cluster.kuberay_rules import RULES as KUBERAY
from cluster.shape import Spot, spots, type_of
from kubernetes.utils.quantity import parse_quantity

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?")
Found = Iterator[tuple[str, str]]
"""A field's name and what is wrong with it."""
WORDS: dict[str, dict[str, set[str]]] = {
    "V1AppArmorProfile": {"type": {"Localhost", "RuntimeDefault", "Unconfined"}},
    "V1Container": {"imagePullPolicy": {"Always", "IfNotPresent", "Never"}},
    "V1ContainerPort": {"protocol": {"TCP", "UDP", "SCTP"}},
    "V1EmptyDirVolumeSource": {"medium": {"", "Memory", "HugePages"}},
    "V1LabelSelectorRequirement": {"operator": {"In", "NotIn", "Exists", "DoesNotExist"}},
    "V1NetworkPolicyPort": {"protocol": {"TCP", "UDP", "SCTP"}},
    "V1PodSpec": {
        "restartPolicy": {"Always", "Never", "OnFailure"},
        "dnsPolicy": {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
    },
    "V1SeccompProfile": {"type": {"Localhost", "RuntimeDefault", "Unconfined"}},
    "V1ServiceSpec": {"type": {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}},
    "V1Toleration": {
        "operator": {"Exists", "Equal"},
        "effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    },
}
ONE_OF = {
    "V1Volume": {"name"},
    "V1LifecycleHandler": set(),
    "V1EnvFromSource": {"prefix"},
    "V1EnvVarSource": set(),
}
"""Types of which exactly one field is given, beside these."""


def refused(document: Any) -> list[str]:
    """Why the API server, or the operator, would not take an object whose shape is right."""
    type_ = type_of(document)
    assert type_ is not None
    return [
        f"{spot.where}.{name}: {what}".lstrip(".")
        for spot in spots(document, type_)
        if isinstance(spot.value, dict)
        for name, what in _found(spot)
    ]


def _found(spot: Spot) -> Found:
    value = spot.value
    for name, words in WORDS.get(spot.type, {}).items():
        if name in value and value[name] not in words:
            yield name, f"{value[name]} is none of {sorted(words)}"
    if spot.type in ONE_OF and len(value.keys() - ONE_OF[spot.type]) != 1:
        yield "", f"one of several is asked for, not {sorted(value)}"
    for rules in (RULES, KUBERAY):
        yield from rules.get(spot.type, lambda _: iter(()))(value)


def metadata(value: dict[str, Any]) -> Found:
    if not DNS_NAME.fullmatch(value.get("name", "x")):
        yield "name", f"{value['name']} is no DNS name"
    for key, text in value.get("labels", {}).items():
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(text):
            yield "labels", f"{key}={text} is no label"
    for key in value.get("annotations", {}):
        if not LABEL_KEY.fullmatch(key):
            yield "annotations", f"{key} is no key"


def pod(value: dict[str, Any]) -> Found:
    volumes = [volume["name"] for volume in value.get("volumes", [])]
    every = [*value.get("initContainers", []), *value["containers"]]
    names = [container["name"] for container in every]
    if len({*names}) < len(names) or len({*volumes}) < len(volumes):
        yield "", f"a name twice, of {sorted(names)} or {sorted(volumes)}"
    for container in every:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield "volumes", f"no {mount['name']}, which {container['name']} mounts"
    of_pod = value.get("securityContext", {})
    for context in (of_pod | container.get("securityContext", {}) for container in every):
        if context.get("runAsNonRoot") and context.get("runAsUser", 0) == 0:
            yield "securityContext", "not as root, and no other user's number"
    if value.get("terminationGracePeriodSeconds", 0) < 0:
        yield "terminationGracePeriodSeconds", "below 0"


def container(value: dict[str, Any]) -> Found:
    if not DNS_LABEL.fullmatch(value["name"]):
        yield "name", f"{value['name']} is no DNS label"
    ports = value.get("ports", [])
    for port in ports:
        if not PORT_NAME.fullmatch(port.get("name", "x")) or not 0 < port["containerPort"] < 65536:
            yield "ports", f"{port}"
    for what, said in (
        ("ports", [port["name"] for port in ports if "name" in port]),
        ("ports", [(port["containerPort"], port.get("protocol")) for port in ports]),
        ("env", [entry["name"] for entry in value.get("env", [])]),
        ("volumeMounts", [mount["mountPath"] for mount in value.get("volumeMounts", [])]),
    ):
        if len(set(said)) < len(said):
            yield what, f"one twice, of {said}"


def resources(value: dict[str, Any]) -> Found:
    amounts: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for side, of in amounts.items():
        for name, text in value.get(side, {}).items():
            try:
                of[name] = parse_quantity(text)
            except ValueError:
                yield side, f"{name}: {text} is no quantity"
    for name, limit in amounts["limits"].items():
        asked = amounts["requests"].get(name, limit)
        if asked > limit or ("/" in name and (asked != limit or limit % 1)):
            yield "requests", f"{name}: {asked} of {limit}"
    for name in amounts["requests"].keys() - amounts["limits"].keys():
        if "/" in name:
            yield "limits", f"{name} needs one, equal to what is asked for"


def environment(value: dict[str, Any]) -> Found:
    if "value" in value and "valueFrom" in value:
        yield "value", "beside valueFrom"
    if not re.fullmatch(r"[A-Za-z_.-][\w.-]*", value["name"]):
        yield "name", value["name"]


def selector(value: dict[str, Any]) -> Found:
    for one in value.get("matchExpressions", []):
        if (one["operator"] in ("In", "NotIn")) != bool(one.get("values")):
            yield "matchExpressions", f"{one['operator']} with {one.get('values')}"


def peer(value: dict[str, Any]) -> Found:
    if not value or ("ipBlock" in value and len(value) > 1):
        yield "", f"an address or selectors, not {sorted(value)}"


def block(value: dict[str, Any]) -> Found:
    for text in (value["cidr"], *value.get("except", [])):
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            yield "cidr", str(error)


def policy(value: dict[str, Any]) -> Found:
    for word in value.get("policyTypes", []):
        if word not in ("Ingress", "Egress"):
            yield "policyTypes", word
    for name in ("ingress", "egress"):
        if name in value and name.capitalize() not in value.get("policyTypes", ["Ingress", "Egress"]):
            yield name, "has no effect: policyTypes does not name it"


RULES: dict[str, Callable[[dict[str, Any]], Found]] = {
    "V1Container": container,
    "V1EnvVar": environment,
    "V1IPBlock": block,
    "V1LabelSelector": selector,
    "V1NetworkPolicyPeer": peer,
    "V1NetworkPolicySpec": policy,
    "V1ObjectMeta": metadata,
    "V1PodSpec": pod,
    "V1ResourceRequirements": resources,
}
