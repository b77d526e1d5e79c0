"""The files of cluster/ against Ray's own schemas, against each other, and against what is in this repository.

Those of KubeRay have tests of their own: test_kuberay.py, test_kuberay_rules.py, test_kuberay_pods.py, and
test_network_policy.py.
"""

import importlib
import json
import re
import tomllib
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.autoscaler
import yaml
from ray.autoscaler._private.util import fillout_defaults, validate_config
from ray.scripts.scripts import start

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


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("commands", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_ray_start_knows_what_it_is_told(cloud: str, commands: str) -> None:
    start_ray = read(f"{cloud}.yaml")[commands][-1].rpartition(";")[2].replace("$RAY_HEAD_IP", "10.0.0.1")
    words = start_ray.split()
    assert words[:2] == ["ray", "start"]
    assert start.make_context("ray start", words[2:]).params["metrics_export_port"] == 8080


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_seed_of_hidden_prompts_and_the_ledger_are_the_heads_alone(cloud: str) -> None:
    docker = read(f"{cloud}.yaml")["docker"]
    known = {
        where: " ".join(docker[where]) for where in ("run_options", "head_run_options", "worker_run_options")
    }
    for name in ("LOWBIT_SECRET", "LOWBIT_LEDGER"):
        assert [where for where, options in known.items() if name in options] == ["head_run_options"]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_hosts_have_no_address_outside_and_a_subnet_that_was_chosen(cloud: str) -> None:
    config = read(f"{cloud}.yaml")
    assert config["provider"]["use_internal_ips"] is True
    for name, kind in config["available_node_types"].items():
        node = kind["node_config"]
        if cloud == "aws":
            assert node["SubnetIds"], name
            assert node["ImageId"], f"{name}: Ray's own is too old"
        else:
            assert [set(one) & {"subnetwork", "accessConfigs"} for one in node["networkInterfaces"]] == [
                {"subnetwork"}
            ], name


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
