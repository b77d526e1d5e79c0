"""From zero to a GPU node for a pod that waits, and back to zero, by Ray's own autoscaler.

Ray's provider for such tests starts nodes as processes of this machine; the autoscaler, its second version as on
the clouds, is the real one.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import ray
from fakes.cluster import kill_tree
from fakes.ports import free_port

from lowbit_ray.engines.nodes import Node
from lowbit_ray.engines.placement import alive_nodes
from lowbit_ray.engines.pod import open_pod
from lowbit_ray.errors import PodError
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.session import ENVIRONMENT, NAMESPACE
from lowbit_ray.tasks import PodShape

pytestmark = pytest.mark.timeout(600)
UP_S, DOWN_S = 180, 180
GIB = 2**30
HEAD_ID = "f" * 51 + "00000"
"""As Ray's provider for tests calls its head."""


COMMANDS = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")


def config(address: str) -> dict[str, object]:
    """As aws.yaml, of this machine: a head without CPUs for pods, labelled GPU nodes from zero."""
    return {
        "cluster_name": "elastic",
        "max_workers": 4,
        "idle_timeout_minutes": 0.05,
        "upscaling_speed": 10,
        "provider": {
            "type": "external",
            "module": "fakes.elastic.ElasticProvider",
            "gcs_address": address,
            "head_node_id": HEAD_ID,
            "launch_multiple": True,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "auth": {},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
            "h200": _type("H200", 8),
            "h100": _type("H100", 1),
        },
        **{f"{part}_commands": [] for part in COMMANDS},
        "file_mounts": {},
        "cluster_synced_files": [],
        "docker": {},
    }


def _type(label: str, gpus: int) -> dict[str, object]:
    return {
        "resources": {"CPU": 4, "GPU": gpus, "memory": 1 * GIB, "object_store_memory": 128 * 2**20},
        "labels": {"ray.io/accelerator-type": label},
        "node_config": {},
        "min_workers": 0,
        "max_workers": 2,
    }


@dataclass(slots=True)
class Elastic:
    """The cluster, and who was up when."""

    ledger: FolderLedger
    waited: list[str] = field(default_factory=list)

    def shape(self, **changes: object) -> PodShape:
        fields = {"tensor_parallel": 1, "accelerator": "H200", "cpus": 1, "memory_gib": 0.5, "wait_s": UP_S}
        return PodShape.model_validate(fields | changes)

    def workers(self) -> list[Node]:
        """Nodes with GPUs that are up."""
        return [node for node in alive_nodes() if node.total.get("GPU")]

    def wait_for_zero(self) -> None:
        deadline = time.monotonic() + DOWN_S
        while left := self.workers():
            assert time.monotonic() < deadline, left
            time.sleep(0.5)


@pytest.fixture(scope="module")
def elastic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elastic]:
    root = Path(tempfile.mkdtemp(prefix="lb-"))  # sockets need a short path
    port = free_port()
    address = f"{ray.util.get_node_ip_address()}:{port}"
    (root / "config.yaml").write_text(json.dumps(config(address)))
    environment = (
        os.environ
        | ENVIRONMENT
        | {
            "RAY_FAKE_CLUSTER": "1",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
            "RAY_NODE_TYPE_NAME": "ray.head.default",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
    )
    ray_start = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"]
    log = (root / "head.log").open("wb")
    head = subprocess.Popen(
        [
            *ray_start,
            *("--num-cpus=0", "--include-dashboard=false", f"--temp-dir={root}"),
            f"--autoscaling-config={root / 'config.yaml'}",
        ],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        _wait_until_up(head, root / "head.log")
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")
        yield Elastic(FolderLedger(tmp_path_factory.mktemp("ledger")))
    finally:
        ray.shutdown()
        head.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(20)
        kill_tree(head)
        log.close()
        left = [
            one
            for one in psutil.process_iter(["cmdline"])
            if str(root) in " ".join(one.info["cmdline"] or ())
        ]
        for one in left:  # nodes whose starter went before them
            with contextlib.suppress(psutil.Error):
                one.kill()
        shutil.rmtree(root, ignore_errors=True)


def _wait_until_up(head: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while b"Ray runtime started" not in log.read_bytes():
        assert head.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def test_a_pod_that_waits_brings_a_labelled_gpu_node_which_goes_again(elastic: Elastic) -> None:
    assert elastic.workers() == []
    with open_pod(
        elastic.shape(), device="cpu", ledger=elastic.ledger, found_by="a test", waiting=elastic.waited.append
    ) as pod:
        (node,) = elastic.workers()
        assert node.id == pod.node
        assert node.labels["ray.io/accelerator-type"] == "H200"
        # held: it is not taken away from below the pod
        time.sleep(8)
        assert [other.id for other in elastic.workers()] == [pod.node]
    assert elastic.waited[0] == "no node has the GPUs"
    elastic.wait_for_zero()


def test_a_second_pod_that_may_not_share_brings_a_second_node(elastic: Elastic) -> None:
    with (
        open_pod(
            elastic.shape(), device="cpu", ledger=elastic.ledger, found_by="a test", waiting=lambda _: None
        ) as first,
        open_pod(
            elastic.shape(), device="cpu", ledger=elastic.ledger, found_by="a test", waiting=lambda _: None
        ) as second,
    ):
        assert first.node != second.node
        assert {node.id for node in elastic.workers()} == {first.node, second.node}
    elastic.wait_for_zero()


def test_what_no_node_type_has_brings_none(elastic: Elastic) -> None:
    shape = elastic.shape(accelerator="B200", wait_s=8)
    with (
        pytest.raises(PodError, match="no node has the GPUs"),
        open_pod(shape, device="cpu", ledger=elastic.ledger, found_by="a test", waiting=lambda _: None),
    ):
        pass
    assert elastic.workers() == []
