"""What Prometheus reads, from a real Ray."""

import re
import time
import urllib.request
from collections.abc import Iterator

import pytest
import ray
from fakes.ports import free_port

from lowbit_ray.metrics import METRICS, StepMetrics, count_dirty_device, set_queue, set_verdicts

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def published() -> Iterator[str]:
    """The page of a node whose driver has published everything once."""
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        options = {"include_dashboard": False, "log_to_driver": False, "_metrics_export_port": port}
        ray.init(address="local", num_cpus=1, object_store_memory=80_000_000, **options)
        try:
            count_dirty_device()
            set_queue(4, 2)
            set_verdicts({"done": 3, "failed": 1})
            StepMetrics().end("timed-5f0c", 12.0, reused=False)
            StepMetrics().end("anchor-5f0c", 99.0, reused=True)
            yield read(port)
        finally:
            ray.shutdown()


def read(port: int) -> str:
    deadline = time.monotonic() + 120
    text = ""
    while not all(f"ray_{name}" in text for name in METRICS):
        assert time.monotonic() < deadline, text[-500:]
        time.sleep(1)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            continue
    return text


def values(text: str, name: str) -> dict[str, float]:
    """A metric's values by its verdict or stage, empty where it has neither."""
    found = {}
    for labels, value in re.findall(rf"^ray_{name}\{{(.*)\}} ([\d.e+]+)$", text, re.MULTILINE):
        tag = re.search(r'(?:verdict|stage)="([^"]*)"', labels)
        found[tag[1] if tag else ""] = float(value)
    return found


def test_every_metric_says_what_it_counts(published: str) -> None:
    for name, meaning in METRICS.items():
        assert f"# HELP ray_{name} {meaning}" in published


def test_values_are_those_that_were_set(published: str) -> None:
    assert values(published, "lowbit_queued") == {"": 4}
    assert values(published, "lowbit_running") == {"": 2}
    assert values(published, "lowbit_evaluations_total") == {"done": 3, "failed": 1}
    assert values(published, "lowbit_gpu_dirty_total") == {"": 1}


def test_a_steps_stage_is_its_name_without_the_pod_and_kept_steps_do_not_count(published: str) -> None:
    assert values(published, "lowbit_stage_seconds_count") == {"timed": 1}
    assert 10 < values(published, "lowbit_stage_seconds_sum")["timed"] < 15  # the middle of its bounds
