"""Who may talk to whom under cluster/kuberay/network-policy.yaml, connection by connection."""

import pytest
from cluster.manifests import policies, put, templates
from cluster.reach import End, address, pod, reaches

POLICIES = policies()
HEAD, WORKER, SERVICE = pod(lowbit="head"), pod(lowbit="worker"), pod(lowbit="service")
SUBMITTER, STRANGER = pod(lowbit="organizer"), pod(app="something")
OPERATOR = pod("kuberay-operator", app="kuberay-operator")
PROMETHEUS, ELSEWHERE = pod("monitoring", app="prometheus"), pod("default", app="web")
DNS, OTHER_SYSTEM = End((("k8s-app", "kube-dns"),), "kube-system"), pod("kube-system", app="other")
NODE_DNS, STORE, HUB = address("169.254.20.10"), address("192.0.2.7"), address("198.51.100.7")
API, WORLD, CLOUD = address("203.0.113.1"), address("8.8.8.8"), address("169.254.169.254")
GCS, NODE, OBJECTS, DASHBOARD, CLIENT, AGENT, METRICS = 6379, 10002, 41231, 8265, 10001, 52365, 8080
"""Ports of Ray's; those of the node manager, of the object manager and of workers are chosen when they start."""


@pytest.mark.parametrize("port", [GCS, NODE, OBJECTS, DASHBOARD, AGENT])
@pytest.mark.parametrize(("source", "target"), [(WORKER, HEAD), (HEAD, WORKER), (WORKER, WORKER)])
def test_rays_nodes_reach_each_other_on_every_port(source: End, target: End, port: int) -> None:
    assert reaches(POLICIES, source, target, port)


@pytest.mark.parametrize("source", [HEAD, WORKER, SERVICE, SUBMITTER])
def test_every_pod_of_ours_is_told_names(source: End) -> None:
    for protocol in ("UDP", "TCP"):
        assert reaches(POLICIES, source, DNS, 53, protocol)
        assert reaches(POLICIES, source, NODE_DNS, 53, protocol)
    assert not reaches(POLICIES, source, OTHER_SYSTEM, 53, "UDP")
    assert not reaches(POLICIES, source, WORLD, 53, "UDP")


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        (HEAD, {STORE, HUB, API}),
        (WORKER, {STORE, HUB}),
        (SERVICE, {STORE}),
        (SUBMITTER, set()),
        (STRANGER, set()),
    ],
)
def test_outside_nothing_is_reached_but_store_hub_and_by_the_autoscaler_the_api(
    source: End, reached: set[End]
) -> None:
    for target in (STORE, HUB, API, WORLD, CLOUD):
        assert reaches(POLICIES, source, target, 443) == (target in reached), target
        assert not reaches(POLICIES, source, target, 80), target
        assert not reaches(POLICIES, source, target, 443, "UDP"), target
    assert reaches(POLICIES, source, API, 6443) == (API in reached)


@pytest.mark.parametrize("target", [HEAD, WORKER])
@pytest.mark.parametrize("source", [SERVICE, STRANGER, ELSEWHERE, WORLD])
def test_what_evaluates_is_reached_by_nobody_else(source: End, target: End) -> None:
    for port in (GCS, NODE, DASHBOARD, CLIENT, METRICS, AGENT):
        assert not reaches(POLICIES, source, target, port)


@pytest.mark.parametrize("source", [SUBMITTER, OPERATOR])
def test_jobs_are_submitted_by_the_dashboard_and_by_nothing_else(source: End) -> None:
    assert reaches(POLICIES, source, HEAD, DASHBOARD)
    for port in (GCS, CLIENT, AGENT):
        assert not reaches(POLICIES, source, HEAD, port)
    assert not reaches(POLICIES, source, WORKER, DASHBOARD)


@pytest.mark.parametrize("target", [HEAD, WORKER, SERVICE])
def test_metrics_are_read_where_they_are(target: End) -> None:
    assert reaches(POLICIES, PROMETHEUS, target, METRICS)
    assert not reaches(POLICIES, PROMETHEUS, target, DASHBOARD)


@pytest.mark.parametrize("source", [WORLD, ELSEWHERE])
def test_the_world_reaches_the_services_port_alone(source: End) -> None:
    assert reaches(POLICIES, source, SERVICE, 8000)
    for port in (GCS, DASHBOARD, CLIENT, METRICS, AGENT):
        assert not reaches(POLICIES, source, SERVICE, port)


def test_the_operator_looks_after_the_service() -> None:
    assert reaches(POLICIES, OPERATOR, SERVICE, DASHBOARD)
    assert reaches(POLICIES, OPERATOR, SERVICE, 8000)
    assert not reaches(POLICIES, OPERATOR, SERVICE, GCS)


def test_the_service_and_what_evaluates_do_not_know_each_other() -> None:
    for one, other in ((SERVICE, HEAD), (SERVICE, WORKER), (HEAD, SERVICE), (WORKER, SERVICE)):
        for port in (GCS, NODE, DASHBOARD):
            assert not reaches(POLICIES, one, other, port)


def test_a_pod_of_no_kind_reaches_nobody_and_is_reached_by_nobody() -> None:
    for other in (HEAD, WORKER, DNS, WORLD):
        assert not reaches(POLICIES, STRANGER, other, 53, "UDP")
        assert not reaches(POLICIES, other, STRANGER, 80)


def test_every_pod_that_is_made_has_a_policy_of_its_own() -> None:
    worn = {name: template["metadata"]["labels"]["lowbit"] for name, template in templates().items()}
    chosen = {one["spec"]["podSelector"].get("matchLabels", {}).get("lowbit") for one in POLICIES}
    assert chosen - {None} == set(worn.values())


def test_a_way_out_that_is_too_wide_would_be_seen() -> None:
    workers = next(one for one in POLICIES if one["metadata"]["name"] == "lowbit-workers")
    for path, value in (("spec.egress.2.to", []), ("spec.egress.2.to.0.ipBlock.cidr", "0.0.0.0/0")):
        assert reaches([*POLICIES, put(workers, path, value)], WORKER, WORLD, 443)
