"""Every object of cluster/kuberay against the schemas of Kubernetes and KubeRay; and that these find what is wrong."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.manifests import objects, put, read
from cluster.shape import described, documents, fields_of, problems, spots, type_of
from kubernetes import client

OBJECTS = objects()
POD = "spec.headGroupSpec.template.spec"
RAY = f"{POD}.containers.0"
WORKERS = "spec.workerGroupSpecs.0"
WORKER = f"{WORKERS}.template.spec"


@pytest.mark.parametrize("name", OBJECTS)
def test_every_object_has_the_fields_and_types_of_its_kind(name: str) -> None:
    assert problems(OBJECTS[name]) == []


def test_all_kinds_that_were_asked_for_are_there() -> None:
    assert {one["kind"] for one in OBJECTS.values()} == {
        "NetworkPolicy",
        "RayCluster",
        "RayJob",
        "RayService",
    }


# ---- planted faults: each is found, by the path of the field


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("kind", "RayClusters", "kind: no RayClusters in ray.io/v1"),
        ("kind", "HeadGroupSpec", "kind: no HeadGroupSpec in ray.io/v1"),
        ("apiVersion", "ray.io/v2", "kind: no RayCluster in ray.io/v2"),
        ("spec", None, "spec: missing"),
        ("spec.headGroupSpecs", {}, "spec.headGroupSpecs: not a field of RayClusterSpec"),
        ("spec.headGroupSpec", None, "spec.headGroupSpec: missing"),
        ("spec.enableInTreeAutoscaling", "yes", "spec.enableInTreeAutoscaling: 'yes' is not bool"),
        ("spec.authOptions.mode", "tokens", "spec.authOptions.mode: 'tokens' is not disabled | token"),
        ("spec.autoscalerOptions.version", "v3", "spec.autoscalerOptions.version: 'v3' is not v1 | v2"),
        ("spec.autoscalerOptions.idleTimeoutSeconds", "600", "'600' is not int"),
        (
            "spec.headGroupSpec.rayStartParams.num-cpus",
            0,
            "spec.headGroupSpec.rayStartParams.[num-cpus]: 0 is not str",
        ),
        (f"{WORKERS}.maxReplicas", None, f"{WORKERS}.maxReplicas: missing"),
        (f"{WORKERS}.minReplicas", True, f"{WORKERS}.minReplicas: True is not int"),
        (f"{WORKERS}.template.spec", [], f"{WORKERS}.template.spec: [] is not V1PodSpec"),
        (f"{POD}.containers", None, f"{POD}.containers: missing"),
        (f"{RAY}.name", None, f"{RAY}.name: missing"),
        (f"{RAY}.ressources", {}, f"{RAY}.ressources: not a field of V1Container"),
        (f"{RAY}.ports.0.containerPort", "6379", f"{RAY}.ports.0.containerPort: '6379' is not int"),
        (f"{RAY}.env.1.valeu", "1", f"{RAY}.env.1.valeu: not a field of V1EnvVar"),
        (f"{RAY}.resources.limits.cpu", 8, f"{RAY}.resources.limits.[cpu]: 8 is not str"),
        (f"{WORKER}.terminationGracePeriodSeconds", "5400s", "'5400s' is not int"),
        (
            f"{WORKER}.containers.0.lifecycle.preStop.exec.comand",
            [],
            f"{WORKER}.containers.0.lifecycle.preStop.exec.comand: not a field of V1ExecAction",
        ),
        (f"{WORKER}.containers.0.lifecycle.preStop.exec.command", "sh", "'sh' is not list[str]"),
        (
            f"{WORKER}.containers.0.securityContext.capabilities.add",
            "SYS_ADMIN",
            "'SYS_ADMIN' is not list[str]",
        ),
        (f"{WORKER}.volumes.1.emptyDir.sizelimit", "1Gi", "sizelimit: not a field of V1EmptyDirVolumeSource"),
        (
            f"{WORKER}.volumes.0.persistentVolumeClaim.claimName",
            None,
            "persistentVolumeClaim.claimName: missing",
        ),
    ],
)
def test_a_fault_in_the_cluster_is_named_by_its_path(path: str, value: object, found: str) -> None:
    said = problems(put(read("raycluster"), path, value))
    assert len(said) == 1
    assert said[0].endswith(found)


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("apiVersion", "networking.k8s.io/v2", "kind: no NetworkPolicy in networking.k8s.io/v2"),
        ("apiVersion", "v1", "kind: no NetworkPolicy in v1"),
        ("spec.podSelectors", {}, "spec.podSelectors: not a field of V1NetworkPolicySpec"),
        ("spec.egress.0.port", [], "spec.egress.0.port: not a field of V1NetworkPolicyEgressRule"),
        ("spec.egress.1.to.1.ipBlock.cidr", None, "spec.egress.1.to.1.ipBlock.cidr: missing"),
        ("spec.ingress.0.from.0.podSelector.matchExpressions.0.operator", None, "operator: missing"),
    ],
)
def test_a_fault_in_a_network_policy_is_named_by_its_path(path: str, value: object, found: str) -> None:
    said = problems(put(OBJECTS["network-policy.yaml: NetworkPolicy/lowbit-workers"], path, value))
    assert [text[-len(found) :] for text in said] == [found]


def typed(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each mapping whose type has fields, with that type."""
    for spot in spots(document, str(type_of(document))):
        if isinstance(spot.value, dict) and fields_of(spot.type) is not None:
            yield spot.value, spot.type


@pytest.mark.parametrize("name", OBJECTS)
def test_no_field_anywhere_can_be_misspelt_unnoticed(name: str) -> None:
    changed = copy.deepcopy(OBJECTS[name])
    tried = 0
    for mapping, kind in typed(changed):
        for field in list(mapping):
            if field in ("apiVersion", "kind"):
                continue
            mapping[f"{field}z"] = mapping.pop(field)
            assert any(said.endswith(f"{field}z: not a field of {kind}") for said in problems(changed)), field
            mapping[field] = mapping.pop(f"{field}z")
            tried += 1
    assert problems(changed) == []
    assert tried >= 4


@pytest.mark.parametrize("name", OBJECTS)
def test_no_field_anywhere_can_hold_something_of_another_type(name: str) -> None:
    changed = copy.deepcopy(OBJECTS[name])
    for mapping, kind in typed(changed):
        for field, was in list(mapping.items()):
            if field in ("apiVersion", "kind") or (fields_of(kind) or {})[field].type == "object":
                continue
            for wrong in (None, {"no": 1}, [1.5]):
                mapping[field] = wrong
                assert problems(changed), (kind, field, wrong)
            mapping[field] = was


# ---- the schemas themselves


def test_every_type_that_kuberays_fields_name_exists() -> None:
    kinds = {name for name, fields in described().items() if isinstance(fields, dict)}
    assert {"RayCluster", "RayJob", "RayService"} <= kinds
    for kind in kinds:
        for field in (fields_of(kind) or {}).values():
            for word in field.type.strip("[]").removeprefix("{str: ").removesuffix("}").split():
                if word.startswith("V1") or word.endswith(("Spec", "Options", "Strategy", "Config", "Rules")):
                    assert fields_of(word), f"{kind}: {field.type}"


def test_what_kubernetes_needs_is_read_from_its_client() -> None:
    container = fields_of("V1Container") or {}
    assert container["name"].needed
    assert not container["image"].needed
    assert container.keys() == set(client.V1Container.attribute_map.values())


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("spec: {replicas: 1}\nspec: {replicas: 2}\n")
    with pytest.raises(yaml.constructor.ConstructorError, match="twice"):
        documents(tmp_path / "twice.yaml")
