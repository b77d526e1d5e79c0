"""The doctor's look at a Ray cluster: what its nodes offer, and each of them from inside."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import ray
from ray.exceptions import RayError

from lowbit_ray.doctor.finding import Finding, examined
from lowbit_ray.doctor.host import look_at_host
from lowbit_ray.engines.nodes import ACCELERATOR, Node
from lowbit_ray.engines.placement import alive_nodes
from lowbit_ray.session import ENVIRONMENT, ray_session
from lowbit_ray.settings import Settings
from lowbit_ray.tasks import Task, list_tasks, load_task

__all__ = ["look_at_cluster"]

NODE_S = 180.0
OVERRIDE = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"


def look_at_cluster(settings: Settings) -> list[Finding]:
    """The cluster of RAY_ADDRESS; nothing is joined where there is none."""
    if not os.environ.get("RAY_ADDRESS"):  # Ray's own variable
        return [
            Finding(
                what="cluster",
                level="good",
                found="no RAY_ADDRESS: evaluations run on a Ray of this machine alone",
            )
        ]
    return examined("cluster", lambda: list(_cluster(settings)))


def _cluster(settings: Settings) -> Iterator[Finding]:
    with ray_session(0):
        nodes = alive_nodes()
        yield Finding(what="cluster", level="good", found=_summary(nodes))
        if os.environ.get("RAY_AUTH_MODE") != "token":
            yield Finding(
                what="cluster",
                level="warning",
                found="RAY_AUTH_MODE is not token",
                remedy="Whoever reaches the head's ports can run anything on it: set it on all nodes.",
            )
        for name in list_tasks(settings.tasks):
            yield _pod(load_task(name, settings.tasks), nodes)
        yield from _each_node(settings, nodes)


def _summary(nodes: list[Node]) -> str:
    gpus: dict[str, float] = {}
    for node in nodes:
        if node.total.get("GPU"):
            label = node.labels.get(ACCELERATOR, "without a label")
            gpus[label] = gpus.get(label, 0) + node.total["GPU"]
    told = ", ".join(f"{count:g} {label}" for label, count in sorted(gpus.items())) or "no GPU"
    return f"Ray {ray.__version__}, {len(nodes)} nodes, {told}"


def _pod(task: Task, nodes: list[Node]) -> Finding:
    """Whether some node that is up has the shape of a task's pod, busy or not."""
    from lowbit_ray.engines.nodes import bundle_of

    shape = task.pod
    fit = [
        node
        for node in nodes
        if (not shape.accelerator or node.labels.get(ACCELERATOR) == shape.accelerator)
        and all(node.total.get(name, 0) >= amount for name, amount in bundle_of(shape).items())
    ]
    if fit:
        return Finding(what=f"pod of {task.id}", level="good", found=f"fits on {len(fit)} nodes")
    wanted = f"{shape.tensor_parallel} GPU, {shape.cpus} CPU, {shape.memory_gib:g} GiB"
    return Finding(
        what=f"pod of {task.id}",
        level="warning",
        found=f"no node that is up has {wanted}"
        + (f" and the label {shape.accelerator}" if shape.accelerator else ""),
        remedy="Well where an autoscaler starts one; otherwise add a node of that shape.",
    )


def _each_node(settings: Settings, nodes: list[Node]) -> Iterator[Finding]:
    """The host's questions, asked by a task on each node that pods can be on."""
    asked = ray.remote(num_cpus=0, max_retries=0)(_inside)
    sent = settings.model_copy(update={"secret": None})
    pods = [node for node in nodes if node.total.get("CPU") or node.total.get("GPU")]
    answers = [
        (
            node,
            asked.options(label_selector={"ray.io/node-id": node.id}).remote(sent, node.total.get("GPU", 0)),
        )
        for node in pods
    ]
    for node, answer in answers:
        try:
            found: list[Finding] = ray.get(answer, timeout=NODE_S)
        except RayError as error:
            found = [
                Finding(
                    what="node",
                    level="bad",
                    found=f"cannot run our code: {str(error).strip().splitlines()[-1][:200]}",
                    remedy="Install this package on it, with the same Python and Ray as the head's.",
                )
            ]
        for finding in found:
            yield finding.model_copy(update={"where": node.name})


def _inside(settings: Settings, gpus: float) -> list[Finding]:
    """On a node: the host's questions, and what its environment has to say to Ray."""
    found = look_at_host(settings, gpus=None if gpus else ())
    with contextlib.suppress(KeyError):
        if os.environ[OVERRIDE] == ENVIRONMENT[OVERRIDE]:
            return found
    found.append(
        Finding(
            what="environment",
            level="warning",
            found=f"{OVERRIDE} is not set",
            remedy="Else processes without a GPU of their own see every GPU of the host.",
        )
    )
    return found
