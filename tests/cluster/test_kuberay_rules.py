"""What the API server, KubeRay's operator, Ray's autoscaler and `ray start` say to cluster/kuberay."""

from typing import Any

import pytest
from cluster.admission import refused
from cluster.manifests import groups, objects, put, read
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.scripts.scripts import start

from lowbit_ray.tasks import list_tasks, load_task

OBJECTS = objects()
POD = "spec.headGroupSpec.template.spec"
WORKERS = "spec.workerGroupSpecs.0"
WORKER = f"{WORKERS}.template.spec"


@pytest.mark.parametrize("name", OBJECTS)
def test_neither_the_api_server_nor_the_operator_refuses_an_object(name: str) -> None:
    assert refused(OBJECTS[name]) == []


# ---- planted faults: each is found


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("metadata.name", "Lowbit", "metadata.name"),
        ("metadata.name", "l" * 54, "metadata.name"),
        ("metadata.name", "1owbit", "metadata.name"),
        ("metadata.labels", {"a b": "c"}, "metadata.labels"),
        ("spec.rayVersion", None, "spec.rayVersion"),
        ("spec.rayVersion", "2.51.0", "spec.rayVersion"),
        ("spec.networkPolicy", {}, "spec.networkPolicy"),
        ("spec.enableInTreeAutoscaling", False, ""),  # allowed: a cluster of a fixed size
        ("spec.headGroupSpec.resources", {"CPU": "0"}, "spec.headGroupSpec.resources"),
        ("spec.headGroupSpec.rayStartParams.labels", "a=b", "spec.headGroupSpec.rayStartParams"),
        (f"{POD}.restartPolicy", "Always", "spec.template.spec.restartPolicy"),
        (f"{POD}.containers", [], "spec.headGroupSpec.template.spec.containers"),
        (f"{POD}.containers.0.env.0", {"name": "RAY_enable_autoscaler_v2", "value": "1"}, "spec.autoscaler"),
        (f"{POD}.containers.0.env.0", {"name": "RAY_REDIS_ADDRESS", "value": "r:6379"}, "spec.headGroupSpec"),
        (f"{POD}.containers.0.env.0.name", "LOWBIT_LOG", f"{POD}.containers.0.env"),
        (
            f"{POD}.containers.0.env.0.valueFrom",
            {"fieldRef": {"fieldPath": "x"}},
            f"{POD}.containers.0.env.0.value",
        ),
        (f"{POD}.containers.0.envFrom.0", {}, f"{POD}.containers.0.envFrom.0"),
        (f"{POD}.containers.0.ports.0.name", "the-port-of-the-gcs", f"{POD}.containers.0.ports"),
        (f"{POD}.containers.0.ports.1.containerPort", 6379, f"{POD}.containers.0.ports"),
        (f"{POD}.containers.0.name", "ray_head", f"{POD}.containers.0.name"),
        (f"{POD}.securityContext.runAsNonRoot", True, f"{POD}.securityContext"),
        (f"{WORKERS}.minReplicas", 9, f"{WORKERS}.minReplicas"),
        (f"{WORKERS}.suspend", True, f"{WORKERS}.suspend"),
        (f"{WORKER}.containers.0.resources.requests.memory", "1501Gi", "resources.requests"),
        (f"{WORKER}.containers.0.resources.requests.memory", "1500 GB", "resources.requests"),
        (f"{WORKER}.containers.0.resources.requests.nvidia!com/gpu", "4", "resources.requests"),
        (f"{WORKER}.containers.0.resources.limits.nvidia!com/gpu", None, "resources.limits"),
        (f"{WORKER}.containers.0.volumeMounts.1.name", "shmm", f"{WORKER}.volumes"),
        (f"{WORKER}.containers.0.volumeMounts.1.mountPath", "/shared", "volumeMounts"),
        (f"{WORKER}.containers.0.securityContext.seccompProfile.type", "None", "seccompProfile.type"),
        (f"{WORKER}.containers.0.lifecycle.preStop", {}, "lifecycle.preStop"),
        (f"{WORKER}.tolerations.0.operator", "Exist", f"{WORKER}.tolerations.0.operator"),
        (f"{WORKER}.volumes.1.hostPath", {"path": "/dev/shm"}, f"{WORKER}.volumes.1"),
        (f"{WORKER}.volumes.1.emptyDir.medium", "memory", "emptyDir.medium"),
        (f"{WORKER}.terminationGracePeriodSeconds", -1, f"{WORKER}.terminationGracePeriodSeconds"),
    ],
)
def test_a_cluster_that_would_be_refused_is_found(path: str, value: object, found: str) -> None:
    said = refused(_put(read("raycluster"), path, value))
    assert (not said) if not found else any(found in text.partition(": ")[0] for text in said), said


@pytest.mark.parametrize(
    ("file", "path", "value", "found"),
    [
        ("rayjob", "metadata.name", "l" * 48, "metadata.name"),
        ("rayjob", "spec.clusterSelector", None, "spec.rayClusterSpec"),
        ("rayjob", "spec.clusterSelector", {"ray.io/name": "lowbit"}, "spec.clusterSelector"),
        ("rayjob", "spec.backoffLimit", 3, "spec.clusterSelector"),
        ("rayjob", "spec.submissionMode", "SidecarMode", "spec.submissionMode"),
        ("rayjob", "spec.ttlSecondsAfterFinished", 60, "spec.shutdownAfterJobFinishes"),
        ("rayjob", "spec.activeDeadlineSeconds", 0, "spec.activeDeadlineSeconds"),
        ("rayjob", "spec.deletionStrategy", {}, "spec.deletionStrategy"),
        ("rayjob", "spec.submitterPodTemplate.spec.restartPolicy", None, "restartPolicy"),
        ("rayservice", "metadata.name", "l" * 48, "metadata.name"),
        ("rayservice", "spec.rayClusterConfig.rayVersion", "latest", "spec.rayClusterConfig.rayVersion"),
        ("rayservice", "spec.rayClusterConfig.upgradeStrategy", {"type": "None"}, "spec.rayClusterConfig"),
        ("rayservice", "spec.rayClusterConfig.workerGroupSpecs.0.idleTimeoutSeconds", 5, "workerGroupSpecs"),
        (
            "rayservice",
            "spec.upgradeStrategy",
            {"type": "NewClusterWithIncrementalUpgrade"},
            "spec.upgradeStrategy",
        ),
    ],
)
def test_a_job_or_service_that_would_be_refused_is_found(
    file: str, path: str, value: object, found: str
) -> None:
    said = refused(_put(read(file), path, value))
    assert any(found in text.partition(": ")[0] for text in said), said


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("spec.policyTypes.1", "egress", "spec.policyTypes"),
        ("spec.policyTypes", ["Ingress"], "spec.egress"),
        ("spec.egress.1.to.1.ipBlock.cidr", "169.254.20.10/16", "ipBlock.cidr"),
        ("spec.egress.1.to.1.podSelector", {}, "spec.egress.1.to.1"),
        ("spec.egress.1.to.0", {}, "spec.egress.1.to.0"),
        ("spec.egress.1.ports.0.protocol", "udp", "spec.egress.1.ports.0.protocol"),
        ("spec.ingress.0.from.0.podSelector.matchExpressions.0.values", [], "podSelector.matchExpressions"),
    ],
)
def test_a_network_policy_that_would_be_refused_is_found(path: str, value: object, found: str) -> None:
    said = refused(put(OBJECTS["network-policy.yaml: NetworkPolicy/lowbit-workers"], path, value))
    assert any(found in text.partition(": ")[0] for text in said), said


def _put(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """As `put`; an exclamation mark is a dot within a name."""
    if "!" not in path:
        return put(document, path, value)
    above, _, last = path.rpartition(".")
    changed = put(document, f"{above}.x", "x")
    spot: Any = changed
    for step in above.split("."):
        spot = spot[int(step)] if isinstance(spot, list) else spot[step]
    del spot["x"]
    name = last.replace("!", ".")
    spot.pop(name) if value is None else spot.__setitem__(name, value)
    return changed


# ---- Ray's own reading


def test_rays_autoscaler_derives_its_configuration_from_the_cluster() -> None:
    cluster = put(read("raycluster"), "metadata.namespace", "lowbit")
    config = _derive_autoscaling_config_from_ray_cr(cluster)
    types = config["available_node_types"]
    assert types[config["head_node_type"]]["resources"]["CPU"] == 0
    assert (config["max_workers"], config["idle_timeout_minutes"]) == (8, 10)
    workers = types["h200"]
    assert (workers["min_workers"], workers["max_workers"]) == (0, 8)
    assert workers["labels"] == {"ray.io/accelerator-type": "H200"}
    for task in map(load_task, list_tasks()):
        shape = task.pod
        assert shape.accelerator in (None, workers["labels"]["ray.io/accelerator-type"]), task.id
        assert workers["resources"]["GPU"] >= shape.tensor_parallel
        assert workers["resources"]["CPU"] >= shape.cpus
        assert workers["resources"]["memory"] >= shape.memory_gib * 2**30


def test_ray_start_knows_every_parameter() -> None:
    known = {name.removeprefix("--") for option in start.params for name in option.opts}
    for name, group in groups():
        assert group["rayStartParams"].keys() <= known, name
