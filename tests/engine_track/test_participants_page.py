"""docs/engine-track.md says what the code does: variables, limits, rules, examples."""

import json
import re
from pathlib import Path

from lowbit_ray.conduct import RULES
from lowbit_ray.engines.isolation import Enclosure
from lowbit_ray.engines.quota import LOG_BYTES
from lowbit_ray.engines.spec import launch_spec
from lowbit_ray.rules import load_rules
from lowbit_ray.settings import Settings
from lowbit_ray.stages.serving import enclosure
from lowbit_ray.tasks import load_task

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine-track.md").read_text()
TASK = load_task("qwen3-8b")


def shut_in() -> Enclosure:
    return enclosure(TASK, Settings(), Path("/cache"), None, foreign=True, required=True)


def test_every_variable_is_told_and_none_that_is_not_given() -> None:
    spec = launch_spec(
        Path("/engine"),
        Path("/model"),
        task=TASK,
        rules=load_rules(),
        cap=None,
        device_total_gib=141.0,
        cache_dir=Path("/cache"),
        gpus=("0",),
    )
    given = {name for name in spec.environment if name.startswith("LOWBIT_")} | {"LOWBIT_PORT"}
    assert set(re.findall(r"LOWBIT_[A-Z_]*[A-Z]", PAGE)) == given


def test_the_limits_are_those_of_the_sandbox() -> None:
    wanted = shut_in()
    assert f"`LOWBIT_CACHE_DIR` ({wanted.cache_gib:g} GiB)" in PAGE
    assert f"{wanted.tmp_gib:g} GiB each" in PAGE
    assert f"{LOG_BYTES // 2**20} MiB" in PAGE
    assert f"({TASK.pod.memory_gib:g} GiB for `{TASK.id}`)" in PAGE
    constant = wanted.processes - 128 * TASK.pod.cpus
    assert re.search(rf"{constant} \+ 128 × cores\s+processes", PAGE)


def test_every_rule_of_conduct_is_named() -> None:
    table = PAGE[PAGE.index("## What is forbidden") : PAGE.index("## Verdicts")]
    assert set(re.findall(r"`([a-z -]+)`[,| ]", table)) == set(RULES)


def test_what_being_shut_in_costs_is_what_was_measured() -> None:
    kept = json.loads((ROOT / "benchmarks" / "results" / "relay.json").read_text())["null_server"]["paced"]
    ours, relay = (kept[way]["ratio_to_direct"] for way in ("sandbox", "relay"))
    words = " ".join(PAGE.split())
    assert f"time per token is {ours['median_tpot_ms']:.2f} times that without" in words
    assert f"server's CPU time {ours['server_cpu_us_per_token']:.2f} times" in words
    assert f"with a relay it would be {relay['server_cpu_us_per_token']:.2f} times" in words


def test_every_example_is_there_and_linked() -> None:
    folders = {path.name for path in (ROOT / "examples" / "engines").iterdir() if path.is_dir()}
    assert set(re.findall(r"examples/engines/(\w+)`\]", PAGE)) == folders
    for link in re.findall(r"\]\((\.\./[^)]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
