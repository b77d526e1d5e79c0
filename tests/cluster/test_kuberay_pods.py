"""What we ask of the pods of cluster/kuberay: secrets, privileges, the environment, and a drain before they stop."""

import re
import subprocess
import time
from pathlib import Path

import ray
from cluster.manifests import clusters, read, templates
from ray.scripts.scripts import drain_node

from lowbit_ray.engines.actor import EngineActor
from lowbit_ray.session import ENVIRONMENT

ROOT = Path(__file__).parents[2]


def test_the_clusters_ask_for_tokens_and_the_second_autoscaler() -> None:
    for name, spec in clusters():
        assert spec["authOptions"] == {"mode": "token"}, name
        assert spec["rayVersion"] == ray.__version__, name
    spec = read("raycluster")["spec"]
    assert spec["enableInTreeAutoscaling"] is True
    assert spec["autoscalerOptions"]["version"] == "v2"


def test_no_secret_that_is_read_has_the_name_of_the_operators_own() -> None:
    taken = {read("raycluster")["metadata"]["name"], read("rayservice")["metadata"]["name"]}
    for name, template in templates().items():
        for container in template["spec"]["containers"]:
            named = {source["secretRef"]["name"] for source in container.get("envFrom", [])}
            assert not named & taken, name


def test_nodes_of_the_cluster_have_the_environment() -> None:
    for name, template in templates().items():
        if name.startswith("raycluster"):
            (container,) = template["spec"]["containers"]
            said = {entry["name"]: entry.get("value") for entry in container["env"]}
            assert ENVIRONMENT.items() <= said.items(), name
            assert "LOWBIT_CACHE" in said


def test_the_head_alone_knows_the_seed_of_hidden_prompts_and_no_worker_the_ledger() -> None:
    read_by = {
        name: {source["secretRef"]["name"] for source in template["spec"]["containers"][0].get("envFrom", [])}
        for name, template in templates().items()
    }
    assert read_by == {
        "raycluster.head": {"lowbit-ledger", "lowbit-prompts"},
        "raycluster.h200": set(),
        "rayservice.head": {"lowbit-ledger"},
        "rayservice.service": {"lowbit-ledger"},
        "rayjob.submitter": set(),
    }


def test_no_pod_but_the_autoscalers_has_a_token_of_kubernetes() -> None:
    for name, template in templates().items():
        given = template["spec"].get("automountServiceAccountToken", True)
        assert given is (name == "raycluster.head"), name


def test_what_the_world_reaches_has_no_privileges() -> None:
    for name, template in templates().items():
        spec = template["spec"]
        (container,) = spec["containers"]
        if name.startswith("raycluster"):
            continue
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        assert container["securityContext"]["allowPrivilegeEscalation"] is False, name


def test_added_capabilities_are_of_root_as_others_do_not_get_them() -> None:
    for name, template in templates().items():
        for container in template["spec"]["containers"]:
            if container.get("securityContext", {}).get("capabilities", {}).get("add"):
                assert template["spec"]["securityContext"]["runAsUser"] == 0, name


def test_gpu_pods_come_from_zero_and_drain_before_they_go() -> None:
    for group in read("raycluster")["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] == group["replicas"] == 0
        deadline = re.search(r"--deadline-remaining-seconds (\d+)", before_stop())
        assert deadline is not None
        assert int(deadline[1]) < group["template"]["spec"]["terminationGracePeriodSeconds"]


def test_the_dispatcher_runs_on_the_cluster_that_is_there_with_an_id_of_its_own() -> None:
    job = read("rayjob")["spec"]
    assert job["clusterSelector"] == {"ray.io/cluster": read("raycluster")["metadata"]["name"]}
    assert "jobId" not in job, "Ray takes no id a second time"
    module = re.search(r"python -m (\S+)", job["entrypoint"])
    assert module is not None
    assert (ROOT / f"{module[1].replace('.', '/')}.py").is_file()


# ---- before a worker stops


def before_stop() -> str:
    """The script that runs before a worker's container is told to end."""
    lifecycle = read("raycluster")["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0][
        "lifecycle"
    ]
    shell, option, script = lifecycle["preStop"]["exec"]["command"]
    assert (shell, option) == ("/bin/sh", "-c")
    return str(script)


def test_the_drain_command_is_one_that_ray_knows() -> None:
    command = before_stop().partition(";")[0].partition("drain-node")[2]
    words = re.findall(r"'[^']*'|\S+", command)
    parsed = drain_node.make_context("drain-node", [word.strip("'") for word in words])
    assert parsed.params["reason"] == "DRAIN_NODE_REASON_PREEMPTION"
    assert parsed.params["deadline_remaining_seconds"] == 5100


def run_before_stop(folder: Path, waits_s: float, group: int = 0) -> float | None:
    """Seconds until the script has ended; None where it had not within `waits_s`.

    Its ray only says what it was asked, and its pgrep sees one process group alone, as other tests have actors too.
    """
    for name, line in (
        ("ray", f'echo "$@" > {folder}/asked'),
        ("pgrep", 'exec /usr/bin/pgrep --pgroup 0 "$@"'),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    command = ["/bin/sh", "-c", before_stop().replace("sleep 5", "sleep 0.2")]
    started = time.monotonic()
    process = subprocess.Popen(command, env={"PATH": f"{folder}:/usr/bin:/bin"}, process_group=group)
    try:
        process.wait(timeout=waits_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
    return time.monotonic() - started


def test_a_worker_on_which_nobody_is_measured_goes_at_once(tmp_path: Path) -> None:
    assert run_before_stop(tmp_path, waits_s=30) is not None
    assert (tmp_path / "asked").read_text().startswith("drain-node --reason DRAIN_NODE_REASON_PREEMPTION")


def test_a_worker_waits_for_whoever_is_measured(tmp_path: Path) -> None:
    name = EngineActor.__ray_metadata__.class_name  # type: ignore[attr-defined]  # Ray's own
    title = f"exec -a 'ray::{name}.ask' sleep 60"
    measured = subprocess.Popen(["/bin/bash", "-c", title], process_group=0)
    try:
        assert run_before_stop(tmp_path, waits_s=2, group=measured.pid) is None
    finally:
        measured.kill()
        measured.wait()
    assert run_before_stop(tmp_path, waits_s=30) is not None
