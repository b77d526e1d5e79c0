"""Parts of the source that a candidate lacks: named once, and mended as the documentation says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from recipes import RECIPES
from small_checkpoints import HIDDEN, Tensors, base_config, plain_tensors, write_checkpoint, write_shards

from lowbit_ray.checkpoint.contract import check_contract
from lowbit_ray.checkpoint.findings import Finding
from lowbit_ray.conduct import Fault
from lowbit_ray.errors import ContractError
from lowbit_ray.rules import Rules
from lowbit_ray.stages.contract import contract

ROOT = Path(__file__).parents[2]
INT8 = next(recipe for recipe in RECIPES if recipe.name == "compressed-tensors int8")
MTP: Tensors = {
    "mtp.fc.weight": ("BF16", (HIDDEN, 2 * HIDDEN)),
    "mtp.layers.0.mlp.up_proj.weight": ("BF16", (HIDDEN, HIDDEN)),
    "mtp.norm.weight": ("BF16", (HIDDEN,)),
}
TOWER: Tensors = {
    "model.visual.blocks.0.attn.qkv.weight": ("BF16", (HIDDEN, HIDDEN)),
    "model.visual.blocks.0.attn.qkv.bias": ("BF16", (HIDDEN,)),
    "model.visual.merger.norm.weight": ("BF16", (HIDDEN,)),
}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A source with a prediction layer and a vision tower, in two shards."""
    folder = tmp_path / "whole"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(base_config()))
    write_shards(folder, {**plain_tensors(), **MTP, **TOWER}, 2)
    return folder


def candidate(tmp_path: Path, *parts: Tensors) -> Path:
    tensors = INT8.tensors()
    for part in parts:
        tensors |= part
    return write_checkpoint(tmp_path / "candidate", tensors, INT8.config())


def missing(source: Path, folder: Path, rules: Rules) -> list[Finding]:
    found = check_contract(source, folder, rules).findings
    return [finding for finding in found if finding.rule == "source_weights"]


def test_a_part_that_is_wholly_missing_is_named_once(tmp_path: Path, whole: Path, rules: Rules) -> None:
    tower, mtp = sorted(missing(whole, candidate(tmp_path), rules), key=lambda finding: finding.field)
    assert (tower.field, tower.found) == ("model.visual.*", "none of its 3 tensors")
    assert (mtp.field, mtp.found) == ("mtp.*", "none of its 3 tensors")
    assert mtp.file == "model.safetensors"
    assert mtp.breaks
    assert "model-00001-of-00002.safetensors" in mtp.remedy
    assert "docs/formats.md" in mtp.remedy


def test_what_is_missing_of_a_part_that_is_there_is_named_alone(
    tmp_path: Path, whole: Path, rules: Rules
) -> None:
    rest = {name: tensor for name, tensor in TOWER.items() if name != "model.visual.merger.norm.weight"}
    (only,) = missing(whole, candidate(tmp_path, MTP, rest), rules)
    assert only.field == "model.visual.merger.norm.weight"
    assert only.expected == f"shape {[HIDDEN]} in any form"


def test_the_verdict_says_file_field_found_expected_and_what_to_do(
    tmp_path: Path, whole: Path, rules: Rules
) -> None:
    evaluation = SimpleNamespace(
        rules=rules,
        task=SimpleNamespace(id="t"),
        submission=SimpleNamespace(track="checkpoint"),
        step=lambda name, kind, compute: compute(),
    )
    built = SimpleNamespace(
        source=SimpleNamespace(path=whole), candidate=SimpleNamespace(path=candidate(tmp_path, TOWER))
    )
    with pytest.raises(ContractError) as caught:
        contract(cast("Any", evaluation), cast("Any", built))
    fault = Fault.of(caught.value)
    assert fault.where == "model.safetensors: mtp.*"
    assert (fault.seen, fault.limit) == ("none of its 3 tensors", "all of them, in any form")
    assert fault.remedy.startswith("Copy them unchanged from the source (")


@pytest.mark.filterwarnings("ignore")
def test_the_documented_lines_mend_it(tmp_path: Path, whole: Path, rules: Rules) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "complete.py"
    text = (ROOT / "docs" / "formats.md").read_text()
    (code,) = re.findall(r"<!-- complete\.py -->\n```python\n(.*?)```", text, flags=re.DOTALL)
    script.write_text(code)
    folder = candidate(tmp_path)
    command = [sys.executable, str(script), str(whole), str(folder), "mtp.", "model.visual."]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "6 tensors added" in done.stdout
    config = INT8.config()
    config["quantization_config"]["ignore"] = [
        *config["quantization_config"].get("ignore", ()),
        "re:mtp.*",
        "re:.*visual.*",
    ]
    (folder / "config.json").write_text(json.dumps(config))
    verdict = check_contract(whole, folder, rules)
    assert verdict.reason is None
    assert verdict.foreign_share == 0
