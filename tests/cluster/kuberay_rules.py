"""What KubeRay's operator refuses of an object that its definition allows, as of release 1.7; feature gates are off.

An object that breaks one of these is created, and then nothing happens but an event that says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

Found = Iterator[tuple[str, str]]
"""A field's name and what is wrong with it."""
LONGEST = {"RayCluster": 53, "RayJob": 47, "RayService": 47}
"""Names of services, and of the clusters that jobs and services make, are built on these."""
OF_THE_START_COMMAND = {"num-cpus", "num-gpus", "memory", "resources"}
V2 = "RAY_enable_autoscaler_v2"
OWN_STORE = {"RAY_REDIS_ADDRESS", "REDIS_USERNAME"}
GATED = ("historyServerOptions", "networkPolicy", "tlsOptions")
TOKENS_SINCE = (2, 52)


def named(kind: str) -> Callable[[dict[str, Any]], Found]:
    """The rule on an object's name."""

    def rule(value: dict[str, Any]) -> Found:
        name = value["metadata"].get("name", "")
        if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(name) > LONGEST[kind]:
            yield "metadata.name", f"{name!r} is no label of at most {LONGEST[kind]} letters"

    return rule


def group(value: dict[str, Any]) -> Found:
    """Head or workers."""
    start = value.get("rayStartParams", {})
    if value.get("resources") and OF_THE_START_COMMAND & start.keys():
        yield "resources", "said in rayStartParams too"
    if "labels" in start:
        yield "rayStartParams", "labels have a field of their own"
    if not value["template"]["spec"]["containers"]:
        yield "template.spec.containers", "none"
    if value.get("suspend"):
        yield "suspend", "is for the operator's own use"
    least, most = value.get("minReplicas", 0), value.get("maxReplicas", 0)
    if not 0 <= least <= most:
        yield "minReplicas", f"{least} of at most {most}"
    if value.get("idleTimeoutSeconds", 0) < 0:
        yield "idleTimeoutSeconds", "below 0"


def cluster(value: dict[str, Any]) -> Found:
    head, workers = value["headGroupSpec"], value.get("workerGroupSpecs", [])
    known = {entry["name"]: entry.get("value") for entry in _ray_container(head).get("env", [])}
    for name in sorted(OWN_STORE & known.keys()):
        yield "headGroupSpec", f"{name} belongs into gcsFaultToleranceOptions"
    for name in GATED:
        if name in value:
            yield name, "needs a feature gate of the operator"
    if len({one["groupName"] for one in workers}) < len(workers):
        yield "workerGroupSpecs", "two groups of one name"
    yield from chain(_autoscaler(value, known), _tokens(value))


def _autoscaler(value: dict[str, Any], known: dict[str, str | None]) -> Found:
    options, workers = value.get("autoscalerOptions", {}), value.get("workerGroupSpecs", [])
    second = options.get("version") == "v2"
    if not value.get("enableInTreeAutoscaling"):
        if known.get(V2) in ("1", "true"):
            yield "enableInTreeAutoscaling", f"is not set, and {V2} is"
    elif second:
        if V2 in known:
            yield "autoscalerOptions.version", f"beside {V2}"
        for one in (value["headGroupSpec"], *workers):
            if one["template"]["spec"].get("restartPolicy", "Never") != "Never":
                yield "template.spec.restartPolicy", "must be Never with autoscaler v2"
    if not second and any("idleTimeoutSeconds" in one for one in workers):
        yield "workerGroupSpecs", "idleTimeoutSeconds of a group needs autoscaler v2"
    if options.get("idleTimeoutSeconds", 0) < 0:
        yield "autoscalerOptions.idleTimeoutSeconds", "below 0"


def _tokens(value: dict[str, Any]) -> Found:
    options = value.get("authOptions", {})
    if options.get("mode") == "token":
        release = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", value.get("rayVersion", ""))
        if release is None or (int(release[1]), int(release[2])) < TOKENS_SINCE:
            yield "rayVersion", f"{value.get('rayVersion')!r}: tokens need 2.52 or newer"
    elif options.get("enableK8sTokenAuth"):
        yield "authOptions.mode", "must be token with enableK8sTokenAuth"


def job(value: dict[str, Any]) -> Found:
    chosen, own = value.get("clusterSelector", {}), value.get("rayClusterSpec")
    tries, mode = value.get("backoffLimit", 0), value.get("submissionMode", "K8sJobMode")
    if not chosen and own is None:
        yield "rayClusterSpec", "or clusterSelector must be there"
    if chosen and not chosen.get("ray.io/cluster"):
        yield "clusterSelector", "names no ray.io/cluster"
    if chosen and (mode == "SidecarMode" or value.get("suspend") or tries):
        yield "clusterSelector", "goes with no SidecarMode, suspend, backoffLimit"
    if mode == "InteractiveMode" and tries:
        yield "backoffLimit", "of a job that somebody submits by hand"
    if mode == "SidecarMode" and {"submitterPodTemplate", "submitterConfig"} & value.keys():
        yield "submissionMode", "SidecarMode has no submitter of its own"
    shut = value.get("shutdownAfterJobFinishes", False)
    if not shut and (value.get("suspend") or value.get("ttlSecondsAfterFinished", 0) > 0):
        yield "shutdownAfterJobFinishes", "must be true with suspend or ttlSecondsAfterFinished"
    if value.get("activeDeadlineSeconds", 1) <= 0 or tries < 0:
        yield "activeDeadlineSeconds", "or backoffLimit below what it may be"
    if "deletionStrategy" in value:
        yield "deletionStrategy", "needs a feature gate of the operator"
    if value.get("submitterPodTemplate", {}).get("spec", {}).get("restartPolicy", "Never") == "Always":
        yield "submitterPodTemplate.spec.restartPolicy", "must be Never or OnFailure, as of any job"
    elif "submitterPodTemplate" in value and "restartPolicy" not in value["submitterPodTemplate"]["spec"]:
        yield "submitterPodTemplate.spec.restartPolicy", "must be said: what is not is Always"


def service(value: dict[str, Any]) -> Found:
    made = value["rayClusterConfig"]
    if made["headGroupSpec"].get("headService", {}).get("metadata", {}).get("name"):
        yield "rayClusterConfig.headGroupSpec.headService", "the operator names it"
    if "upgradeStrategy" in made or made.get("authOptions", {}).get("enableK8sTokenAuth"):
        yield "rayClusterConfig", "upgradeStrategy and enableK8sTokenAuth are for clusters of their own"
    gradual = value.get("upgradeStrategy", {}).get("type") == "NewClusterWithIncrementalUpgrade"
    if gradual and not (
        made.get("enableInTreeAutoscaling") and "clusterUpgradeOptions" in value["upgradeStrategy"]
    ):
        yield "upgradeStrategy", "needs the autoscaler and clusterUpgradeOptions"


def _ray_container(group: dict[str, Any]) -> dict[str, Any]:
    """Ray's is the first one."""
    first: dict[str, Any] = next(iter(group["template"]["spec"]["containers"]), {})
    return first


RULES: dict[str, Callable[[dict[str, Any]], Found]] = {
    "HeadGroupSpec": group,
    "RayCluster": named("RayCluster"),
    "RayClusterSpec": cluster,
    "RayJob": named("RayJob"),
    "RayJobSpec": job,
    "RayService": named("RayService"),
    "RayServiceSpec": service,
    "WorkerGroupSpec": group,
}
