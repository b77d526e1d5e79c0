"""The objects of cluster/kuberay, and where things stand in them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.shape import documents

FOLDER = Path(__file__).parents[2] / "cluster" / "kuberay"
Object = dict[str, Any]


def objects() -> dict[str, Object]:
    """All of them, by `file: kind/name`."""
    return {
        f"{path.name}: {one['kind']}/{one['metadata']['name']}": one
        for path in sorted(FOLDER.iterdir())
        for one in documents(path)
    }


def read(name: str) -> Object:
    """The one object of a file."""
    (one,) = documents(FOLDER / f"{name}.yaml")
    return dict(one)


def policies() -> list[Object]:
    return documents(FOLDER / "network-policy.yaml")


def clusters() -> Iterator[tuple[str, Object]]:
    """Each cluster's specification."""
    yield "raycluster", read("raycluster")["spec"]
    yield "rayservice", read("rayservice")["spec"]["rayClusterConfig"]


def groups() -> Iterator[tuple[str, Object]]:
    """Heads and groups of workers, by `cluster.group`."""
    for name, spec in clusters():
        yield f"{name}.head", spec["headGroupSpec"]
        for group in spec["workerGroupSpecs"]:
            yield f"{name}.{group['groupName']}", group


def templates() -> dict[str, Object]:
    """Of every pod that is made from these files."""
    made = {name: group["template"] for name, group in groups()}
    return made | {"rayjob.submitter": read("rayjob")["spec"]["submitterPodTemplate"]}


def put(document: Object, path: str, value: object = None) -> Object:
    """A copy with `value` at the path; without what is there where the value is None."""
    changed = copy.deepcopy(document)
    *above, last = path.split(".")
    spot: Any = changed
    for step in above:
        spot = spot[int(step)] if isinstance(spot, list) else spot[step]
    if isinstance(spot, list):
        spot[int(last)] = value
    elif value is None:
        del spot[last]
    else:
        spot[last] = value
    return changed
