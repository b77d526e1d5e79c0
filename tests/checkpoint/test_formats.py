"""Every format: what is read of it, what each missing part says, and the table in docs/formats.md."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recipes import RECIPES
from recipes_compressed import INT8, INT8_TOKEN, compressed, int_group
from small_checkpoints import (
    HIDDEN,
    Recipe,
    base_config,
    linear_shapes,
    plain_tensors,
    write_checkpoint,
    write_source,
)

from lowbit_ray.checkpoint.contract import Contract, check_contract
from lowbit_ray.checkpoint.formats import READERS
from lowbit_ray.checkpoint.precision import Precision
from lowbit_ray.checkpoint.reading import read_both, read_checkpoint
from lowbit_ray.rules import Rules, load_rules

ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "docs" / "formats.md", ROOT / "README.md")
OPTIONAL = {
    # companions that a config does not ask for, or that its scheme can do without
    "g_idx",
    "weight_format",
    "_weight_scale",
    "_weight_zero_point",
    "_weight_scale_and_zero",
    "input_scale of modelopt NVFP4, weight only",
}


def by_name(recipe: Recipe) -> str:
    return recipe.name


def read(source: Path, candidate: Path) -> Precision:
    precision = read_both(read_checkpoint(source), read_checkpoint(candidate)).precision
    assert precision is not None
    return precision


def companions() -> list[tuple[Recipe, str]]:
    """Each required companion of each recipe."""
    module, (rows, columns) = "model.layers.1.mlp.down_proj", (HIDDEN, 2 * HIDDEN)
    assert linear_shapes()[module] == (rows, columns)
    found = []
    for recipe in RECIPES:
        parts = recipe.parts if isinstance(recipe.parts, str) else recipe.parts(module)
        for part in parts.split(";")[1:]:
            suffix = part.split()[0]
            if suffix not in OPTIONAL and f"{suffix} of {recipe.name}" not in OPTIONAL:
                found.append((recipe, suffix))
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=by_name)
def test_a_format_is_read_as_what_it_is(tmp_path: Path, source: Path, rules: Rules, recipe: Recipe) -> None:
    contract = check_contract(source, recipe.write(tmp_path), rules)
    assert contract.reason is None
    assert contract.precision is not None
    assert contract.precision.label == recipe.label
    assert contract.foreign == ()


@pytest.mark.parametrize("recipe", RECIPES, ids=by_name)
def test_group_sizes_come_from_the_scales(tmp_path: Path, source: Path, recipe: Recipe) -> None:
    assert read(source, recipe.write(tmp_path)).group_sizes[-1:] == ((recipe.group,) if recipe.group else ())


@pytest.mark.parametrize("recipe", RECIPES, ids=by_name)
def test_effective_bits_count_every_byte_of_weights_and_companions(
    tmp_path: Path, source: Path, recipe: Recipe
) -> None:
    precision = read(source, recipe.write(tmp_path))
    headers = read_checkpoint(tmp_path).headers
    shapes = linear_shapes()
    kv = ("k_scale", "v_scale", "k_proj.output_scale", "v_proj.output_scale")
    stored = sum(
        tensor.nbytes
        for name, tensor in headers.tensors.items()
        if any(name.startswith(f"{module}.") for module in shapes) and not name.endswith(kv)
    )
    weights = sum(rows * columns for rows, columns in shapes.values())
    linear = next(region for region in precision.regions if region.region == "linear")
    assert linear.effective_bits == pytest.approx(8 * stored / weights, abs=1e-4)


@pytest.mark.parametrize(("recipe", "suffix"), companions(), ids=lambda value: getattr(value, "name", value))
def test_a_missing_companion_breaks_the_contract_by_name(
    tmp_path: Path, source: Path, rules: Rules, recipe: Recipe, suffix: str
) -> None:
    tensors = recipe.tensors()
    del tensors[f"model.layers.1.mlp.down_proj.{suffix}"]
    files = {recipe.file: recipe.quantization} if recipe.file else {}
    contract = check_contract(source, write_checkpoint(tmp_path, tensors, recipe.config(), **files), rules)
    fields = [finding.field for finding in contract.findings if finding.breaks]
    assert f"model.layers.1.mlp.down_proj.{suffix}" in fields


@pytest.mark.parametrize("recipe", RECIPES, ids=by_name)
def test_a_missing_weight_breaks_the_contract_by_name(
    tmp_path: Path, source: Path, rules: Rules, recipe: Recipe
) -> None:
    tensors = recipe.tensors()
    gone = [name for name in tensors if name.startswith("model.layers.0.mlp.up_proj.")]
    for name in gone:
        del tensors[name]
    files = {recipe.file: recipe.quantization} if recipe.file else {}
    contract = check_contract(source, write_checkpoint(tmp_path, tensors, recipe.config(), **files), rules)
    missing = [
        finding for finding in contract.findings if finding.summary == "a weight of the source is missing"
    ]
    assert [finding.field for finding in missing] == ["model.layers.0.mlp.up_proj.weight"]


@pytest.mark.parametrize("recipe", RECIPES, ids=by_name)
def test_a_config_over_plain_weights_is_not_believed(
    tmp_path: Path, source: Path, rules: Rules, recipe: Recipe
) -> None:
    files = {recipe.file: recipe.quantization} if recipe.file else {}
    contract = check_contract(
        source, write_checkpoint(tmp_path, plain_tensors(), recipe.config(), **files), rules
    )
    assert contract.precision is not None
    assert contract.precision.weights == 16
    assert contract.precision.activations == 16


@pytest.mark.parametrize("recipe", RECIPES, ids=by_name)
def test_quantized_tensors_without_a_config_name_the_places_that_were_looked_at(
    tmp_path: Path, source: Path, rules: Rules, recipe: Recipe
) -> None:
    contract = check_contract(source, write_checkpoint(tmp_path, recipe.tensors(), base_config()), rules)
    assert not contract.kept
    first = contract.findings[0]
    assert (first.file, first.field) == ("config.json", "quantization_config")
    assert "quantize_config.json, quant_config.json" in first.found


def test_every_reader_has_a_recipe() -> None:
    methods = {str(recipe.quantization.get("quant_method", "")) for recipe in RECIPES}
    aliases = {
        "auto_gptq": "gptq", "gptq_marlin": "gptq", "moe_wna16": "gptq", "auto_awq": "awq", "awq_marlin": "awq",
        "modelopt_fp4": "modelopt", "modelopt_mxfp8": "modelopt", "modelopt_mixed": "modelopt", "inc": "auto-round",
    }  # fmt: skip
    experts = {"mxfp4", "gpt_oss_mxfp4"}  # test_experts.py
    assert {aliases.get(name, name) for name in READERS} - experts <= methods


packed_widths = st.integers(2, 8)


@settings(max_examples=80, deadline=None)
@given(
    bits=packed_widths,
    rows=st.integers(1, 40).map(lambda n: 8 * n),
    columns=st.integers(1, 12).map(lambda n: 32 * n),
    group=st.sampled_from([16, 32, 64, 128]),
    across_words=st.booleans(),
)
def test_bits_and_group_follow_from_any_packed_shape(
    tmp_path_factory: pytest.TempPathFactory,
    bits: int,
    rows: int,
    columns: int,
    group: int,
    across_words: bool,
) -> None:
    folder = tmp_path_factory.mktemp("packed")
    config = base_config(hidden_size=columns)
    name = "model.layers.0.mlp.up_proj"
    write_checkpoint(folder / "source", {f"{name}.weight": ("BF16", (rows, columns))}, config)
    per_word = math.ceil(columns * bits / 32) if across_words else math.ceil(columns / (32 // bits))
    tensors = {
        f"{name}.weight_packed": ("I32", (rows, per_word)),
        f"{name}.weight_shape": ("I64", (2,)),
        f"{name}.weight_scale": ("BF16", (rows, math.ceil(columns / group))),
    }
    quantized = {**config, "quantization_config": compressed(int_group(bits, group), None, "pack-quantized")}
    precision = read(folder / "source", write_checkpoint(folder / "candidate", tensors, quantized))
    assert (precision.weights, precision.group_sizes) == (bits, (group,))


@settings(max_examples=60, deadline=None)
@given(bits=packed_widths, claimed=packed_widths, columns=st.integers(4, 16).map(lambda n: 64 * n))
def test_a_width_that_the_bytes_do_not_hold_is_never_read(
    tmp_path_factory: pytest.TempPathFactory, bits: int, claimed: int, columns: int
) -> None:
    folder = tmp_path_factory.mktemp("claimed")
    name, config = "model.layers.0.mlp.up_proj", base_config()
    write_checkpoint(folder / "source", {f"{name}.weight": ("BF16", (64, columns))}, config)
    words = math.ceil(columns / (32 // bits))
    tensors = {
        f"{name}.weight_packed": ("I32", (64, words)),
        f"{name}.weight_shape": ("I64", (2,)),
        f"{name}.weight_scale": ("BF16", (64, columns // 64)),
    }
    quantized = {**config, "quantization_config": compressed(int_group(claimed, 64), None, "pack-quantized")}
    source, candidate = folder / "source", write_checkpoint(folder / "candidate", tensors, quantized)
    # two widths may need the same number of words; then the claim fits and is read
    fits = words in (math.ceil(columns / (32 // claimed)), math.ceil(columns * claimed / 32))
    contract = check_contract(source, candidate, load_rules())
    assert contract.kept == fits


def test_int4_embeddings_and_an_8_bit_head_are_reported_apart(
    tmp_path: Path, source: Path, rules: Rules
) -> None:
    config = compressed(INT8, INT8_TOKEN, "int-quantized", ignore=[])
    embedding = {"targets": ["re:.*embed_tokens"], "weights": int_group(4, 32), "format": "pack-quantized"}
    head = {**config["config_groups"]["group_0"], "targets": ["Linear", "lm_head"]}
    config["config_groups"] = {"group_0": head, "group_1": embedding}
    tensors = Recipe("", "weight I8 n,k; weight_scale F32 n,1", {}, "").tensors()
    rows = tensors.pop("model.embed_tokens.weight")[1][0]
    del tensors["lm_head.weight"]
    tensors |= {
        "lm_head.weight": ("I8", (rows, HIDDEN)),
        "lm_head.weight_scale": ("F32", (rows, 1)),
        "model.embed_tokens.weight_packed": ("I32", (rows, HIDDEN // 8)),
        "model.embed_tokens.weight_shape": ("I64", (2,)),
        "model.embed_tokens.weight_scale": ("BF16", (rows, HIDDEN // 32)),
    }
    candidate = write_checkpoint(tmp_path, tensors, base_config(quantization_config=config))
    contract = check_contract(source, candidate, rules)
    precision = contract.precision
    assert contract.reason is None
    assert precision is not None
    assert (precision.label, precision.weights_average) == ("W8A8KV16", 8.0)
    assert (precision.embeddings, precision.head) == (4, 8)


def test_fp16_and_float32_sources_are_read_by_their_width(tmp_path: Path) -> None:
    half = write_checkpoint(tmp_path / "half", plain_tensors("F16"), base_config())
    wide = write_checkpoint(tmp_path / "wide", plain_tensors("F32"), base_config())
    assert read(half, half).label == "W16A16KV16"
    assert read(half, wide).label == "W32A16KV16"


def rows_of_table(source: Path, folder: Path, rules: Rules) -> list[str]:
    rows = [
        "| format | weights | bits with scales | group | activations | KV | method |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, recipe in enumerate(RECIPES):
        contract: Contract = check_contract(source, recipe.write(folder / str(number)), rules)
        precision = contract.precision
        assert precision is not None
        linear = next(region for region in precision.regions if region.region == "linear")
        widths = ", ".join(str(width) for width in sorted(linear.bits))
        group = ", ".join(map(str, precision.group_sizes)) or "—"
        review = " (needs review)" if precision.needs_review else ""
        rows.append(
            f"| {recipe.name} | {widths} | {linear.effective_bits:.3f} | {group} | {precision.activations} "
            f"| {precision.kv} | `{precision.method}`{review} |"
        )
    return rows


def test_the_tables_in_the_documentation_are_what_is_read(tmp_path: Path, source: Path, rules: Rules) -> None:
    table = "\n".join(rows_of_table(source, tmp_path, rules))
    for document in DOCUMENTS:
        written = re.search(r"<!-- table -->\n(.*)\n<!-- end of table -->", document.read_text(), re.DOTALL)
        assert written is not None
        assert written[1] == table, f"{document.name} should hold:\n{table}"


def test_a_wider_source_changes_no_label(tmp_path: Path, rules: Rules) -> None:
    source = write_source(tmp_path / "source", tie_word_embeddings=False, max_position_embeddings=4096)
    recipe = RECIPES[0]
    config = {**recipe.config(), "max_position_embeddings": 4096}
    candidate = write_checkpoint(tmp_path / "candidate", recipe.tensors(), config)
    contract = check_contract(source, candidate, rules)
    assert contract.precision is not None
    assert contract.precision.label == recipe.label
