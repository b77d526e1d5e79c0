"""Pods on a real Ray cluster of two nodes with four GPUs each that do not exist."""

import contextlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import ray
from fakes.cluster import FakeCluster

from lowbit_ray.engines import pod as pod_module
from lowbit_ray.engines.placement import Place, alive_nodes, find_place
from lowbit_ray.engines.pod import Pod, open_pod
from lowbit_ray.engines.quarantine import list_quarantined, release
from lowbit_ray.engines.turn import Turn
from lowbit_ray.errors import DirtyDeviceError, NoPodError, PodError
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.tasks import PodShape

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]
NVML = ROOT / "tests" / "fakes" / "nvml"


@dataclass(frozen=True, slots=True)
class Hosts:
    """The cluster, and what NVML says on each of its nodes."""

    ledger: FolderLedger
    nvml: dict[str, Path]
    """By node."""

    def say(self, node: str, **gpus: dict[str, Any]) -> None:
        """Sets what NVML tells there."""
        part = self.nvml[node].with_suffix(".part")
        part.write_text(json.dumps({name.removeprefix("gpu"): state for name, state in gpus.items()}))
        part.replace(self.nvml[node])

    def pod(
        self,
        device: Literal["cuda", "cpu"] = "cpu",
        waiting: Callable[[str], None] = lambda _: None,
        **changes: Any,
    ) -> AbstractContextManager[Pod]:
        fields = {"tensor_parallel": 1, "accelerator": "H200", "cpus": 1, "memory_gib": 0.1, "wait_s": 30}
        return open_pod(
            PodShape.model_validate(fields | changes),
            device=device,
            ledger=self.ledger,
            found_by="a test",
            waiting=waiting,
            settle_s=1.0,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("nvml")
    environment = {"PYTHONPATH": f"{NVML}:{ROOT}"}
    nodes = FakeCluster(Path(tempfile.mkdtemp(prefix="lb-")), environment)
    states = {f"host-{number}": folder / str(number) for number in (1, 2)}
    try:
        nodes.start_head()
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error", namespace="lowbit")
        for number, state in enumerate(states.values(), start=1):
            state.write_text("{}")
            environment["FAKE_NVML"] = str(state)
            nodes.add_node(4, label="H200")
            up = hosts_of_nodes(number)  # two that start at the same moment stand in each other's way
        yield {node: states[host] for node, host in up.items()}
    finally:
        ray.shutdown()
        nodes.close()
        shutil.rmtree(nodes.root, ignore_errors=True)


def hosts_of_nodes(count: int) -> dict[str, str]:
    """The label of each node with GPUs, by Ray's id, as soon as so many are there."""
    deadline = time.monotonic() + 180
    while len(found := [node for node in alive_nodes() if node.total.get("GPU")]) < count:
        assert time.monotonic() < deadline, "the nodes did not come up"
        time.sleep(0.2)
    return {node.id: node.labels["lowbit-host"] for node in found}


@pytest.fixture
def hosts(cluster: dict[str, Path], tmp_path: Path) -> Hosts:
    for state in cluster.values():
        state.write_text("{}")
    return Hosts(FolderLedger(tmp_path / "ledger"), cluster)


def test_pods_that_may_not_share_go_to_different_hosts_and_a_third_waits(hosts: Hosts) -> None:
    with hosts.pod() as first, hosts.pod() as second:
        assert first.node != second.node
        assert first.facts.name != second.facts.name
        with pytest.raises(PodError, match="another pod on") as caught, hosts.pod(wait_s=3):
            pass
        assert "no other pod there" in str(caught.value)


def test_pods_that_come_at_the_same_moment_get_different_hosts(hosts: Hosts) -> None:
    held = threading.Barrier(2, timeout=60)

    def take(_: int) -> str:
        with hosts.pod() as pod:
            held.wait()  # both hold theirs at once
            return pod.node

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            assert set(pool.map(take, range(2))) == set(hosts.nvml)


def test_a_host_is_free_again_when_its_pod_has_ended(hosts: Hosts) -> None:
    for _ in range(3):
        with hosts.pod() as first, hosts.pod() as second:
            assert first.node != second.node
    time.sleep(1.5)
    assert all(node.free.get(node.whole) == 1.0 for node in alive_nodes())


def test_pods_that_may_share_have_different_gpus_of_one_host(hosts: Hosts) -> None:
    with contextlib.ExitStack() as stack:
        pods = [stack.enter_context(hosts.pod(may_share_host=True)) for _ in range(6)]
        assert len({pod.facts.name for pod in pods}) == 6
        assert len({pod.node for pod in pods}) == 2
        with pytest.raises(PodError, match="another pod"), hosts.pod(wait_s=3):
            pass


def test_a_pod_that_waits_gets_the_host_that_is_freed(hosts: Hosts) -> None:
    told: list[str] = []
    with hosts.pod(), contextlib.ExitStack() as held:
        second = held.enter_context(hosts.pod())

        def waiting(why: str) -> None:
            told.append(why)
            held.close()

        with hosts.pod(waiting=waiting) as third:
            assert third.node == second.node
    assert "another pod" in told[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tensor_parallel": 8}, "only 4 GPU of the 8 GPU needed"),
        ({"accelerator": "B200"}, "label H200 in the place of B200"),
        ({"memory_gib": 2**20}, "GiB of memory of the"),
        ({"cpus": 64}, "only 16 CPU of the 64 CPU needed"),
    ],
    ids=["GPUs", "label", "memory", "CPUs"],
)
def test_the_resource_that_no_node_has_is_named(hosts: Hosts, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PodError) as caught, hosts.pod(wait_s=0.1, **changes):
        pass
    assert words in str(caught.value)


def test_whoever_is_told_of_the_wait_may_end_it(hosts: Hosts) -> None:
    def cancelled(why: str) -> None:
        raise InterruptedError(why)

    with pytest.raises(InterruptedError, match="only 4 GPU"), hosts.pod(tensor_parallel=8, waiting=cancelled):
        pass


def place(gpus: int, since: float, wait_s: float, waiting: Callable[[str], None] = lambda _: None) -> Place:
    """Without an actor, of one who has been at it since then."""
    shape = PodShape(tensor_parallel=gpus, accelerator="H200", cpus=1, memory_gib=0.1, may_share_host=True)
    return find_place(
        shape,
        deadline=time.monotonic() + wait_s,
        quarantined=lambda: (),
        waiting=waiting,
        turn=Turn(scored=False, since=since, accelerator="H200", alone=False),
    )


@pytest.mark.usefixtures("hosts")
def test_one_that_needs_a_whole_host_is_not_passed_over_for_ever_by_those_that_need_a_gpu() -> None:
    now, told = time.time(), list[str]()
    with contextlib.ExitStack() as held, ThreadPoolExecutor(1) as pool:
        small = [place(1, now - 200, 60) for _ in range(7)]
        for one in small:
            held.callback(one.give_back)
        emptier = min(
            {one.node.id for one in small}, key=lambda node: sum(one.node.id == node for one in small)
        )
        asking = threading.Event()
        large = pool.submit(place, 4, now - 100, 120, lambda _: asking.set())
        assert asking.wait(60)
        with pytest.raises(NoPodError):  # although a GPU is free
            place(1, now, 5, told.append)
        assert any("runs empty for a larger pod" in why for why in told)
        for one in small:
            if one.node.id == emptier:
                one.give_back()
        got = large.result(120)
        held.callback(got.give_back)
    assert got.node.id == emptier


def test_a_call_that_is_never_answered_ends_as_a_fault_of_ours(hosts: Hosts) -> None:
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Stuck:
        def footprint(self) -> None:
            time.sleep(3600)

        def progress(self) -> dict[str, Any]:
            return {}

    actor = Stuck.remote()
    pod = Pod(actor=actor, gpus=0, facts=Any, opened=0.0, node=next(iter(hosts.nvml)))  # type: ignore[arg-type]
    with pytest.raises(PodError, match="does not answer"):
        pod.call("footprint", watch=lambda _: None, limit_s=3)
    ray.kill(actor)


def test_a_node_whose_driver_hangs_is_left_alone_for_a_while(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost GPU can do that; the node is the one that Ray would give again and again."""
    monkeypatch.setattr(pod_module, "START_S", 20.0)
    monkeypatch.setattr(pod_module, "HUNG_S", 60.0)
    first, second = hosts.nvml
    hosts.say(first, driver={"hangs_s": 3600})
    with hosts.pod("cuda", wait_s=240) as one:
        assert one.node == second
        with pytest.raises(PodError), hosts.pod("cuda", wait_s=25):  # the other one has to try the first node
            pass
    assert list_quarantined(hosts.ledger) == {}


def dirty_all(hosts: Hosts, node: str) -> None:
    hosts.say(node, **{f"gpu{index}": {"used_gib": 3.0, "pids": [4711]} for index in range(4)})


def test_a_node_with_a_foreign_process_is_quarantined_and_another_one_taken(hosts: Hosts) -> None:
    first, second = hosts.nvml
    dirty_all(hosts, first)
    # whichever node Ray tries first: a second pod beside one on the clean node has to try the dirty one
    with hosts.pod("cuda") as pod, pytest.raises(PodError, match="quarantine"), hosts.pod("cuda", wait_s=4):
        pass
    assert pod.node == second
    found = list_quarantined(hosts.ledger)
    assert list(found) == [first]
    assert "pid 4711" in found[first].reason
    assert found[first].found_by == "a test"


def test_a_released_node_is_used_again(hosts: Hosts) -> None:
    first, _ = hosts.nvml
    dirty_all(hosts, first)
    with hosts.pod("cuda"), pytest.raises(PodError), hosts.pod("cuda", wait_s=4):
        pass
    hosts.say(first)
    assert release(hosts.ledger, first) == [first]
    with hosts.pod("cuda") as one, hosts.pod("cuda") as two:
        assert {one.node, two.node} == set(hosts.nvml)


def test_a_device_that_is_not_clean_afterwards_puts_its_node_into_quarantine(hosts: Hosts) -> None:
    with hosts.pod("cuda") as pod:
        dirty_all(hosts, pod.node)
    assert list(list_quarantined(hosts.ledger)) == [pod.node]


def test_a_device_that_is_not_clean_between_two_engines_ends_the_pod(hosts: Hosts) -> None:
    def soil_and_stop(pod: Pod) -> None:
        soiled.append(pod.node)
        dirty_all(hosts, pod.node)
        pod.call("stop")

    soiled: list[str] = []
    with pytest.raises(DirtyDeviceError, match="4711"), hosts.pod("cuda") as pod:
        soil_and_stop(pod)
    assert list(list_quarantined(hosts.ledger)) == soiled


def test_a_node_whose_driver_does_not_answer_is_quarantined(hosts: Hosts) -> None:
    for node in hosts.nvml:
        hosts.say(node, driver={"gone": True})
    with pytest.raises(PodError, match="quarantine"), hosts.pod("cuda", wait_s=8):
        pass
    reasons = [found.reason for found in list_quarantined(hosts.ledger).values()]
    assert len(reasons) == 2
    assert all("no NVIDIA driver answers" in reason for reason in reasons)


def test_the_record_of_the_host_names_gpu_driver_clocks_and_power(hosts: Hosts) -> None:
    with hosts.pod("cuda") as pod:
        gpu = pod.facts.host.gpus[0]
    assert (gpu.name, gpu.driver, gpu.clock_mhz, gpu.memory_clock_mhz, gpu.power_limit_w) == (
        "NVIDIA Imagined",
        "580.1",
        1980,
        3201,
        700.0,
    )
    assert gpu.cuda == "13.0"
    assert pod.facts.host.ray == ray.__version__
