"""Why no node can give a pod, from what the nodes have."""

from typing import Any

from lowbit_ray.engines.nodes import Node, bundle_of, closed_to, pods_in, unmet
from lowbit_ray.tasks import PodShape

GIB = 2**30


def shape(**changes: Any) -> PodShape:
    fields = {"tensor_parallel": 2, "accelerator": "H200", "cpus": 8, "memory_gib": 64}
    return PodShape.model_validate(fields | changes)


def node(name: str, label: str | None = "H200", free: dict[str, float] | None = None, **total: float) -> Node:
    everything = {"GPU": 8.0, "CPU": 64.0, "memory": 512.0 * GIB, f"node:{name}": 1.0, **total}
    return Node(
        id=f"{name}-id",
        address=name,
        labels={"ray.io/accelerator-type": label} if label else {},
        total=everything,
        free=everything | (free or {}),
    )


def test_a_pod_asks_for_gpus_cpus_and_memory() -> None:
    assert bundle_of(shape()) == {"GPU": 2.0, "CPU": 8.0, "memory": 64.0 * GIB}
    assert "GPU" not in bundle_of(shape(tensor_parallel=0))


def test_no_node_with_gpus_is_said() -> None:
    assert unmet(shape(), [node("head", None, GPU=0.0)], ()) == "no node has the GPUs"
    assert unmet(shape(tensor_parallel=0), [], ()) == "there is no node"


def test_a_wrong_label_is_named() -> None:
    assert unmet(shape(), [node("a", "A100")], ()) == "label A100 in the place of H200 on a (a-id)"
    assert "label missing in the place of H200" in unmet(shape(), [node("a", None)], ())


def test_what_a_node_never_has_differs_from_what_others_hold() -> None:
    assert "only 1 GPU of the 2 GPU needed" in unmet(shape(), [node("a", GPU=1.0)], ())
    assert "only 16 GiB of memory of the 64" in unmet(shape(), [node("a", memory=16.0 * GIB)], ())
    assert "4 CPU free of the 8 CPU needed" in unmet(shape(), [node("a", free={"CPU": 4.0})], ())


def test_the_nearest_miss_comes_first_and_each_node_has_one_reason() -> None:
    told = unmet(shape(), [node("far", "A100"), node("near", free={"GPU": 1.0})], ())
    assert (
        told
        == "1 GPU free of the 2 GPU needed on near (near-id); label A100 in the place of H200 on far (far-id)"
    )


def test_many_nodes_of_one_reason_are_counted() -> None:
    told = unmet(shape(), [node(f"n{i}", "A100") for i in range(5)], ())
    assert told.endswith("on n0 (n0-id), n1 (n1-id), n2 (n2-id) and 2 more")


def test_a_quarantined_node_is_named_as_such() -> None:
    assert unmet(shape(), [node("a")], {"a-id"}) == "quarantine on a (a-id)"


def test_a_host_with_another_pod_is_closed_to_one_that_may_not_share() -> None:
    shared = node("a", free={"node:a": 0.99})
    assert closed_to(shape(), [shared, node("b")]) == {"a-id"}
    assert closed_to(shape(may_share_host=True), [shared]) == set()
    assert unmet(shape(), [shared], ()) == "another pod on a (a-id)"


def test_a_host_of_a_pod_that_may_not_share_is_closed_to_all() -> None:
    alone = node("a", free={"node:a": 0.0})
    assert closed_to(shape(may_share_host=True), [alone]) == {"a-id"}
    assert "may not share its host" in unmet(shape(may_share_host=True), [alone], ())


def test_how_many_pods_a_cluster_holds_at_a_time() -> None:
    nodes = [node("a"), node("b", GPU=3.0), node("c", "A100"), node("head", None, GPU=0.0)]
    assert pods_in(shape(may_share_host=True), nodes) == 4 + 1
    assert pods_in(shape(), nodes) == 2
    assert pods_in(shape(may_share_host=True, cpus=32), nodes) == 2 + 1
    assert pods_in(shape(accelerator=None, tensor_parallel=0), [node("head", None, GPU=0.0)]) == 1
    assert pods_in(shape(), []) == 0
