"""Configurations that make no sense: a verdict or a CheckpointError, never anything else, and never for long."""

from __future__ import annotations

import copy
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recipes import RECIPES
from small_checkpoints import Recipe, base_config, write_checkpoint, write_file

from lowbit_ray.checkpoint.contract import check_contract
from lowbit_ray.errors import CheckpointError
from lowbit_ray.rules import Rules, load_rules

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**64, -(2**63), 1e308, 0.5, "", "x", "re:", "re:(", "*", "4", "int", [], [1],
    [[]], ["x", 1], {}, {"": {}}, {"a": []}, [None, None], [0, 0], [128, 0], "\x1b[31m", "é" * 300,
    ["re:.*"], float("inf"),
]  # fmt: skip
"""Values of every type that a field may hold instead of what it should."""


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every value inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return (
        [path, *(place for key, item in inner for place in places(item, (*path, key)))]
        if path
        else [place for key, item in inner for place in places(item, (key,))]
    )


def damaged(config: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One or two values replaced, removed, or put elsewhere."""
    found = copy.deepcopy(config)
    for _ in range(rng.randint(1, 2)):
        every = places(found)
        if not every:
            return found
        *parents, last = rng.choice(every)
        scope: Any = found
        for key in parents:
            scope = scope[key]
        if rng.random() < 0.2:
            del scope[last]
        else:
            scope[last] = copy.deepcopy(rng.choice([*VALUES, found]))
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_no_damaged_quantization_config_crashes_the_check(
    tmp_path: Path, source: Path, rules: Rules, recipe: Recipe
) -> None:
    rng = random.Random(recipe.name)
    recipe.write(tmp_path)
    place = tmp_path / (f"{recipe.file}.json" if recipe.file else "config.json")
    whole = recipe.quantization if recipe.file else recipe.config()
    started = time.monotonic()
    for _ in range(60):
        inner = damaged(recipe.quantization, rng)
        text = json.dumps(inner if recipe.file else {**whole, "quantization_config": inner})
        place.write_text(text)
        try:
            contract = check_contract(source, tmp_path, rules)
        except CheckpointError:
            continue
        assert contract.model_dump_json()
    assert time.monotonic() - started < 30


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_no_damaged_config_json_crashes_the_check(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("config")
    rng = random.Random(seed)
    hybrid = {
        "text_config": base_config(),
        "vision_config": {"depth": 1},
        "rope_parameters": {"rope_theta": 1.0},
    }
    write_file(folder / "model.safetensors", {"model.norm.weight": ("BF16", (8,))})
    (folder / "config.json").write_text(json.dumps(damaged({**base_config(), **hybrid}, rng)))
    try:
        contract = check_contract(folder, folder, load_rules())
    except CheckpointError:
        return
    assert contract.source_gib > 0


names = st.sampled_from([
    "model.layers.0.mlp.up_proj", "model.layers.0.mlp.experts.gate_up_proj", "lm_head", "model.embed_tokens",
    "language_model.model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.qkv_proj", "visual.blocks.0.attn", "",
])  # fmt: skip
suffixes = st.sampled_from([
    "", ".weight", ".weight_packed", ".qweight", ".weight_scale", ".scales", "_blocks", "_scales", ".weight.absmax",
    ".k_scale", ".bias",
])  # fmt: skip
shapes = st.lists(st.sampled_from([0, 1, 2, 8, 16, 128]), max_size=4).map(tuple)
dtypes = st.sampled_from(["BF16", "I8", "U8", "I32", "F8_E4M3", "F32", "F4", "I64"])
tensors = st.dictionaries(
    st.tuples(names, suffixes).map("".join).filter(bool), st.tuples(dtypes, shapes), min_size=1, max_size=10
)


@settings(max_examples=300, deadline=None)
@given(tensors, tensors, st.sampled_from(RECIPES))
def test_no_set_of_tensors_crashes_the_check(
    tmp_path_factory: pytest.TempPathFactory, ours: Any, theirs: Any, recipe: Recipe
) -> None:
    folder = tmp_path_factory.mktemp("tensors")
    config = {"quantization_config": recipe.quantization}
    try:
        source = write_checkpoint(folder / "source", ours, base_config())
        candidate = write_checkpoint(folder / "candidate", theirs, base_config(**config))
        contract = check_contract(source, candidate, load_rules())
    except CheckpointError:
        return
    assert contract.foreign_share >= 0
