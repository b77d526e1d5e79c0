"""The files of cluster/: against Ray's own schemas, against KubeRay's fields, and against each other.

KubeRay's custom resource definitions are not part of any package, so its fields are named here by hand, as the API
reference of KubeRay 1.6 lists them: a field that is not listed, or missing, fails.
"""

import importlib
import json
import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.autoscaler
import yaml
from ray.autoscaler._private.util import fillout_defaults, validate_config

from lowbit_ray.metrics import METRICS
from lowbit_ray.session import ENVIRONMENT
from lowbit_ray.tasks import list_tasks, load_task

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
CLOUDS = ("aws", "gcp")


def read(name: str) -> Any:
    return yaml.safe_load((CLUSTER / name).read_text())


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())


# ---- ray up


@pytest.mark.parametrize("cloud", CLOUDS)
def test_ray_up_files_are_what_rays_schema_asks(cloud: str, schema: Any) -> None:
    jsonschema.validate(read(f"{cloud}.yaml"), schema)


def test_rays_schema_refuses_a_field_that_it_does_not_know(schema: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(read("aws.yaml") | {"idle_timeout": 5}, schema)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_ray_accepts_them_with_its_own_defaults_filled_in(cloud: str) -> None:
    whole = fillout_defaults(read(f"{cloud}.yaml"))
    validate_config(whole)
    assert whole["available_node_types"]["h200x8"]["max_workers"] == 8


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_head_offers_no_cpu_and_gpu_hosts_come_from_zero(cloud: str) -> None:
    config = read(f"{cloud}.yaml")
    types = config["available_node_types"]
    head = types.pop(config["head_node_type"])
    assert head["resources"]["CPU"] == 0
    assert "--num-cpus=0" in config["head_start_ray_commands"][-1]
    assert types
    for name, kind in types.items():
        assert kind["min_workers"] == 0, name
        assert kind["resources"]["GPU"] >= 1
        assert kind["labels"]["ray.io/accelerator-type"]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_tasks_pod_fits_on_a_host_that_the_autoscaler_can_start(cloud: str) -> None:
    types = read(f"{cloud}.yaml")["available_node_types"].values()
    for task in map(load_task, list_tasks()):
        shape = task.pod
        if shape.accelerator is None:
            continue
        assert any(
            kind.get("labels", {}).get("ray.io/accelerator-type") == shape.accelerator
            and kind["resources"]["GPU"] >= shape.tensor_parallel
            and kind["resources"]["CPU"] >= shape.cpus
            and kind["resources"]["memory"] >= shape.memory_gib * 2**30
            for kind in types
        ), task.id


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("commands", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_nodes_of_ray_up_have_the_environment(cloud: str, commands: str) -> None:
    start = read(f"{cloud}.yaml")[commands][-1]
    for name, value in (ENVIRONMENT | {"RAY_AUTH_MODE": "token"}).items():
        assert f"{name}={value}" in start
    token = re.search(r"RAY_AUTH_TOKEN_PATH=([^;\s]+)", start)
    assert token is not None
    assert token[1] in read(f"{cloud}.yaml")["file_mounts"]


# ---- KubeRay

POD_TEMPLATE = {"metadata?", "spec"}
HEAD = {"template", "rayStartParams", "serviceType?", "labels?", "resources?", "headService?"}
WORKER = {
    *("groupName", "template", "rayStartParams", "minReplicas", "maxReplicas", "replicas?"),
    *("labels?", "resources?", "idleTimeoutSeconds?", "numOfHosts?", "scaleStrategy?", "suspend?"),
}
CLUSTER_SPEC = {
    *("headGroupSpec", "workerGroupSpecs?", "rayVersion?", "enableInTreeAutoscaling?", "autoscalerOptions?"),
    *("authOptions?", "gcsFaultToleranceOptions?", "headServiceAnnotations?", "managedBy?", "suspend?"),
    "upgradeStrategy?",
}
AUTOSCALER = {
    *("version?", "upscalingMode?", "idleTimeoutSeconds?", "resources?", "image?", "imagePullPolicy?"),
    *("env?", "envFrom?", "securityContext?", "volumeMounts?"),
}
JOB_SPEC = {
    *("entrypoint?", "rayClusterSpec?", "clusterSelector?", "jobId?", "submissionMode?", "metadata?"),
    *("runtimeEnvYAML?", "entrypointNumCpus?", "entrypointNumGpus?", "entrypointResources?", "suspend?"),
    *("activeDeadlineSeconds?", "backoffLimit?", "shutdownAfterJobFinishes?", "ttlSecondsAfterFinished?"),
    *("submitterConfig?", "submitterPodTemplate?", "deletionStrategy?", "managedBy?"),
}
SERVICE_SPEC = {"serveConfigV2?", "rayClusterConfig", "serveService?", "upgradeStrategy?"}
CONTAINER = {
    *("name", "image", "env?", "ports?", "resources?", "volumeMounts?", "securityContext?", "lifecycle?"),
    *("command?", "args?", "envFrom?", "imagePullPolicy?"),
}
POD = {
    *("containers", "volumes?", "nodeSelector?", "tolerations?", "terminationGracePeriodSeconds?"),
    *("automountServiceAccountToken?", "serviceAccountName?", "securityContext?", "affinity?"),
}


def check_fields(value: dict[str, Any], fields: set[str], where: str) -> None:
    """Each field is known, and those without a question mark are there."""
    known = {field.removesuffix("?") for field in fields}
    assert set(value) <= known, f"{where}: {set(value) - known}"
    needed = {field for field in fields if not field.endswith("?")}
    assert needed <= set(value), f"{where}: {needed - set(value)} missing"


def clusters() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each cluster specification of KubeRay's files."""
    yield "raycluster", read("kuberay/raycluster.yaml")["spec"]
    yield "rayservice", read("kuberay/rayservice.yaml")["spec"]["rayClusterConfig"]


def groups() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in clusters():
        yield f"{name}.head", spec["headGroupSpec"]
        for group in spec["workerGroupSpecs"]:
            yield f"{name}.{group['groupName']}", group


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, group in groups():
        for container in group["template"]["spec"]["containers"]:
            yield name, container


@pytest.mark.parametrize(
    ("name", "kind"), [("raycluster", "RayCluster"), ("rayjob", "RayJob"), ("rayservice", "RayService")]
)
def test_kuberays_objects_name_their_kind(name: str, kind: str) -> None:
    value = read(f"kuberay/{name}.yaml")
    check_fields(value, {"apiVersion", "kind", "metadata", "spec"}, name)
    assert (value["apiVersion"], value["kind"]) == ("ray.io/v1", kind)
    assert re.fullmatch(r"[a-z0-9-]{1,40}", value["metadata"]["name"])


def test_kuberays_fields_are_known_and_complete() -> None:
    check_fields(read("kuberay/rayjob.yaml")["spec"], JOB_SPEC, "rayjob")
    check_fields(read("kuberay/rayservice.yaml")["spec"], SERVICE_SPEC, "rayservice")
    for name, spec in clusters():
        check_fields(spec, CLUSTER_SPEC, name)
        check_fields(spec.get("autoscalerOptions", {}), AUTOSCALER, name)
    for name, group in groups():
        check_fields(group, HEAD if name.endswith(".head") else WORKER, name)
        check_fields(group["template"], POD_TEMPLATE, name)
        check_fields(group["template"]["spec"], POD, name)
        # ray start's parameters are strings
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), name
    for name, container in containers():
        check_fields(container, CONTAINER, name)
        for quantities in container["resources"].values():
            assert all(isinstance(value, str) for value in quantities.values()), name


def test_volumes_that_are_mounted_exist() -> None:
    for name, group in groups():
        spec = group["template"]["spec"]
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes, name


def test_kuberay_asks_for_tokens_and_the_second_autoscaler() -> None:
    for name, spec in clusters():
        assert spec["authOptions"] == {"mode": "token"}, name
        assert spec["rayVersion"] == ray.__version__, name
    spec = read("kuberay/raycluster.yaml")["spec"]
    assert spec["enableInTreeAutoscaling"] is True
    assert spec["autoscalerOptions"]["version"] == "v2"


def test_gpu_pods_come_from_zero_with_labels_and_drain_before_they_go() -> None:
    for group in read("kuberay/raycluster.yaml")["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] == group["replicas"] == 0
        assert group["labels"]["ray.io/accelerator-type"]
        pod = group["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert (
            container["resources"]["limits"]["nvidia.com/gpu"]
            == container["resources"]["requests"]["nvidia.com/gpu"]
        )
        command = container["lifecycle"]["preStop"]["exec"]["command"][-1]
        deadline = re.search(r"--deadline-remaining-seconds (\d+)", command)
        assert deadline is not None
        assert int(deadline[1]) < pod["terminationGracePeriodSeconds"]


def test_the_drain_command_is_one_that_ray_knows() -> None:
    from click.testing import CliRunner
    from ray.scripts.scripts import drain_node

    command = read("kuberay/raycluster.yaml")["spec"]["workerGroupSpecs"][0]["template"]["spec"][
        "containers"
    ][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
    options = set(re.findall(r"--[a-z-]+", command.partition(";")[0]))
    shown = CliRunner().invoke(drain_node, ["--help"]).output
    assert options
    assert all(option in shown for option in options)
    assert "DRAIN_NODE_REASON_PREEMPTION" in shown


def test_nodes_that_evaluate_on_kubernetes_have_the_environment() -> None:
    for name, container in containers():
        if not name.startswith("raycluster"):
            continue
        said = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert ENVIRONMENT.items() <= said.items(), name
        assert {"LOWBIT_LEDGER", "LOWBIT_SECRET", "LOWBIT_CACHE"} <= set(said)


def test_the_service_does_not_know_the_secret_of_hidden_prompts() -> None:
    for name, container in containers():
        if name.startswith("rayservice"):
            assert "LOWBIT_SECRET" not in {entry["name"] for entry in container["env"]}


def test_the_dispatcher_runs_on_the_cluster_that_is_there() -> None:
    job = read("kuberay/rayjob.yaml")["spec"]
    assert job["clusterSelector"] == {"ray.io/cluster": read("kuberay/raycluster.yaml")["metadata"]["name"]}
    module = re.search(r"python -m (\S+)", job["entrypoint"])
    assert module is not None
    assert (ROOT / f"{module[1].replace('.', '/')}.py").is_file()


# ---- network


def policies() -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((CLUSTER / "kuberay" / "network-policy.yaml").read_text())
    return {document["metadata"]["name"]: document["spec"] for document in documents}


def test_every_pod_of_ours_has_a_policy_that_denies_what_is_not_named() -> None:
    chosen = {spec["podSelector"]["matchLabels"]["lowbit"] for spec in policies().values()}
    worn = {group["template"]["metadata"]["labels"]["lowbit"] for _, group in groups()}
    assert chosen == worn
    for spec in policies().values():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        check_fields(spec, {"podSelector", "policyTypes", "ingress", "egress"}, "policy")


def test_workers_reach_the_cluster_names_store_and_hub_and_nothing_else() -> None:
    egress = policies()["lowbit-workers"]["egress"]
    for rule in egress:
        assert rule["to"], "a rule without `to` lets everything out"
        for peer in rule["to"]:
            assert set(peer) <= {"podSelector", "namespaceSelector", "ipBlock"}
            assert peer.get("ipBlock", {}).get("cidr") != "0.0.0.0/0"
    blocks = [peer["ipBlock"]["cidr"] for rule in egress for peer in rule["to"] if "ipBlock" in peer]
    assert len(blocks) == 2
    ports = [
        port["port"]
        for rule in egress
        if any("ipBlock" in peer for peer in rule["to"])
        for port in rule["ports"]
    ]
    assert ports == [443]


# ---- Serve


def test_the_serve_file_is_what_serves_schema_asks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own models
        from ray.serve.schema import ServeDeploySchema

    deployed = ServeDeploySchema.model_validate(read("serve.yaml"))
    assert [application.route_prefix for application in deployed.applications] == ["/"]


def test_kuberays_service_deploys_the_same_as_the_serve_file() -> None:
    assert yaml.safe_load(read("kuberay/rayservice.yaml")["spec"]["serveConfigV2"]) == read("serve.yaml")


def test_the_service_takes_the_arguments_of_the_serve_file() -> None:
    application = read("serve.yaml")["applications"][0]
    module, _, function = application["import_path"].partition(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own models
        deploy = importlib.import_module(module)
    assert callable(getattr(deploy, function))
    assert deploy.Arguments.model_validate(application["args"]).replicas == 2


# ---- image


def test_the_image_copies_what_exists_and_installs_an_extra_that_exists() -> None:
    text = (CLUSTER / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists(), source
    extra = re.search(r'pip install "/src\[(\w+)\]"', text)
    assert extra is not None
    assert extra[1] in project["optional-dependencies"]
    for name, value in (ENVIRONMENT | {"RAY_AUTH_MODE": "token"}).items():
        assert f"{name}={value}" in text


# ---- dashboard


def test_every_metric_on_the_dashboard_is_published_and_every_published_one_is_shown() -> None:
    panels = json.loads((CLUSTER / "grafana.json").read_text())["panels"]
    shown = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    ours = {name.removesuffix("_bucket") for name in re.findall(r"ray_(lowbit_\w+)", shown)}
    assert ours == set(METRICS)


def test_panels_have_a_place_of_their_own() -> None:
    panels = json.loads((CLUSTER / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
