"""compressed-tensors itself: what it writes is read as it meant it, and our table of presets is its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import base_config, write_checkpoint

from lowbit_ray.checkpoint.contract import check_contract
from lowbit_ray.checkpoint.formats.compressed_tensors import FORMATS
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.quantization_args import load_presets, read_args
from lowbit_ray.rules import Rules

HERE = Path(__file__).parent
REMOVED = {"sparse-bitmask", "sparse-24-bitmask", "marlin-24"}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the library has written."""
    folder = tmp_path_factory.mktemp("library")
    subprocess.run(
        [sys.executable, HERE / "write_with_library.py", folder],
        check=True,
        timeout=240,
        cwd=HERE,
        # the library's casts are compiled functions; eagerly they need no compiler
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"},
    )
    return folder


@pytest.fixture(scope="session")
def facts(library: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((library / "library.json").read_text())
    return found


@pytest.mark.parametrize(
    ("preset", "label", "groups"),
    [
        ("W8A8", "W8A8KV16", ()),
        ("W4A16", "W4A16KV16", (128,)),
        ("W4A16_ASYM", "W4A16KV16", (128,)),
        ("W8A16", "W8A16KV16", (128,)),
        ("FP8", "W8A8KV16", ()),
        ("FP8_DYNAMIC", "W8A8KV16", ()),
        ("FP8_BLOCK", "W8A8KV16", (128,)),
        ("NVFP4", "W4A4KV16", (16,)),
        ("NVFP4A16", "W4A16KV16", (16,)),
        ("MXFP4", "W4A4KV16", (32,)),
        ("MXFP8", "W8A8KV16", (32,)),
    ],
)
def test_what_the_library_compresses_is_read_as_its_preset(
    source: Path, library: Path, rules: Rules, preset: str, label: str, groups: tuple[int, ...]
) -> None:
    contract = check_contract(source, library / preset, rules)
    assert contract.reason is None
    assert contract.foreign == ()
    assert contract.precision is not None
    assert (contract.precision.label, contract.precision.group_sizes) == (label, groups)


@pytest.mark.parametrize("bits", range(2, 9))
def test_every_width_that_the_library_packs_is_read(
    tmp_path: Path, library: Path, rules: Rules, bits: int
) -> None:
    weight = {"model.layers.0.mlp.up_proj.weight": ("BF16", (96, 320))}
    contract = check_contract(
        write_checkpoint(tmp_path, weight, base_config()), library / f"int{bits}", rules
    )
    assert contract.reason is None
    assert contract.precision is not None
    assert (contract.precision.weights, contract.precision.group_sizes) == (bits, (64,))


def test_the_presets_are_the_librarys(facts: dict[str, Any]) -> None:
    assert set(load_presets()) == set(facts["presets"])
    for name, sides in facts["presets"].items():
        ours, theirs = Fields(load_presets()[name], name), Fields(sides, name)
        for side in ("weights", "input_activations"):
            assert read_args(ours.sub(side)) == read_args(theirs.sub(side)), (name, side)


def test_the_formats_are_the_librarys_without_the_removed_ones(facts: dict[str, Any]) -> None:
    assert set(FORMATS) == set(facts["formats"]) - REMOVED
