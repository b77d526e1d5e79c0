"""`serve deploy` of the cluster's own file, on a Ray of this machine; a replica that is killed under load."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psutil
import pytest
import yaml
from asking import body
from fakes.cluster import FakeCluster
from fakes.ports import free_port

from lowbit_ray.errors import ConfigError, InfraError
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.people import find_person, issue_token
from lowbit_ray.service.client import Service

ROOT = Path(__file__).parents[2]
WRITERS = 4


@dataclass(slots=True)
class Deployed:
    """The service on Ray Serve."""

    url: str
    ledger: FolderLedger
    token: str
    cluster: FakeCluster

    def replicas(self) -> list[psutil.Process]:
        """The processes of this cluster's replicas."""
        assert self.cluster.head is not None
        found = []
        for process in self.cluster.head.tree():
            try:
                if "ServeReplica" in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("s")
    ledger = FolderLedger(folder / "ledger")
    token = issue_token(ledger, "olga", "organizer")
    settings = {"LOWBIT_LEDGER": str(ledger.root), "LOWBIT_CACHE": str(folder / "cache")}
    cluster = FakeCluster(Path(f"/tmp/lowbit-serve-{free_port()}"), settings)
    port = free_port()
    config = yaml.safe_load((ROOT / "cluster" / "serve.yaml").read_text())
    config["http_options"] |= {"host": "127.0.0.1", "port": port}
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    try:
        cluster.start_head(cpus=4)
        deploy = ["-m", "ray.serve.scripts", "deploy", "-a", cluster.dashboard, str(folder / "serve.yaml")]
        done = subprocess.run(
            [sys.executable, *deploy],
            capture_output=True,
            text=True,
            timeout=240,
            env=cluster.driver_environment(),
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url)
        yield Deployed(url, ledger, token, cluster)
    finally:
        cluster.close()


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            if httpx2.get(f"{url}/readyz", timeout=10).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        assert time.monotonic() < deadline, "the service does not get ready"
        time.sleep(0.5)


@dataclass(slots=True)
class Writers:
    """Clients that hand in one submission after another, each with its key."""

    url: str
    token: str
    ended: threading.Event = field(default_factory=threading.Event)
    accepted: dict[str, str] = field(default_factory=dict)
    """Ids by key, of what the service said that it took."""
    faults: list[str] = field(default_factory=list)

    def write(self, writer: int) -> None:
        with Service(self.url, self.token) as service:
            for n in range(10_000):
                if self.ended.is_set():
                    return
                key = f"{writer}-{n}"
                try:
                    self.accepted[key] = service.submit(body(split="test"), key)["id"]
                except InfraError as error:
                    self.faults.append(str(error))


def test_the_same_service_answers_on_ray_serve(deployed: Deployed) -> None:
    assert httpx2.get(f"{deployed.url}/api/rules", timeout=30).json()["version"] == "23"
    with Service(deployed.url, deployed.token) as service:
        view = service.submit(body(split="test"))
        assert service.show(view["id"])["status"] == "waiting"
        service.cancel(view["id"])
        assert [moment["status"] for moment in service.follow(view["id"])][-1] == "cancelled"
    page = httpx2.get(f"{deployed.url}/", timeout=30)
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]


def test_a_replica_killed_under_load_loses_nothing_and_doubles_nothing(deployed: Deployed) -> None:
    writers = Writers(deployed.url, deployed.token)
    threads = [threading.Thread(target=writers.write, args=(n,)) for n in range(WRITERS)]
    before = {process.pid for process in deployed.replicas()}
    assert len(before) == 2
    earlier = set(deployed.ledger.keys("accepted/"))
    for thread in threads:
        thread.start()
    wait_for(writers, 40)
    psutil.Process(min(before)).kill()
    wait_for(writers, 120)
    deadline = time.monotonic() + 120
    while len({process.pid for process in deployed.replicas()} - before) < 1:
        assert time.monotonic() < deadline, "the replica was not started again"
        time.sleep(0.5)
    writers.ended.set()
    for thread in threads:
        thread.join(120)
    stored = [key.rpartition("-")[2] for key in set(deployed.ledger.keys("accepted/")) - earlier]
    assert len(stored) == len(set(stored)), "a submission is twice in the queue"
    assert set(writers.accepted.values()) <= set(stored)
    assert len(set(writers.accepted.values())) == len(writers.accepted)
    assert len(stored) - len(writers.accepted) <= len(writers.faults) + WRITERS
    assert find_person(deployed.ledger, "olga").organizer


def wait_for(writers: Writers, count: int) -> None:
    deadline = time.monotonic() + 180
    while len(writers.accepted) < count:
        assert time.monotonic() < deadline, (len(writers.accepted), writers.faults[-3:])
        time.sleep(0.1)


@pytest.mark.parametrize("args", [{"replicas": 0}, {"surprise": 1}, {"ledger": 5}])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray's own models
def test_an_argument_that_is_wrong_is_named(args: dict[str, object]) -> None:
    from lowbit_ray.service.deploy import build

    with pytest.raises(ConfigError, match=f"args.{next(iter(args))}"):
        build(args)
