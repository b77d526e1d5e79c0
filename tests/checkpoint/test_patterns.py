"""Patterns of strangers: matched as each format means them, and never for long."""

from __future__ import annotations

import re
import time

import pytest

from lowbit_ray.checkpoint.formats.selector import How, Selector
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import MAX_PATTERNS, Matcher
from lowbit_ray.errors import CheckpointError

NAMES = [f"model.layers.{n}.{part}" for n in range(12) for part in ("self_attn.q_proj", "mlp.down_proj")]


@pytest.mark.parametrize(
    "pattern", [r".*mlp\.down_proj", r"model\.layers\.(1|2)\..*", r".*\.(?:1[0-1])\..+", "a{1,3}"]
)
def test_quick_and_slow_patterns_match_as_re_does(pattern: str) -> None:
    matcher = Matcher(NAMES)
    for name in NAMES:
        assert matcher.regex(pattern, name, "x") == bool(re.match(pattern, name))


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(.*)*x", r"(.*a){25}", r"(?:.*){0,30}y"])
def test_a_pattern_that_never_ends_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.setattr("lowbit_ray.checkpoint.patterns.BUDGET_S", 0.5)
    started = time.monotonic()
    with pytest.raises(CheckpointError, match="takes too long"):
        Matcher(["a" * 60 + "!"]).regex(pattern, "a" * 60 + "!", "config.json: ignore")
    assert time.monotonic() - started < 5


def test_the_budget_is_for_all_patterns_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowbit_ray.checkpoint.patterns.BUDGET_S", 1.0)
    matcher = Matcher(NAMES)
    started = time.monotonic()
    with pytest.raises(CheckpointError):
        any(matcher.regex(rf"x{{{number},}}", NAMES[0], "x") for number in range(1, 1000))
    assert time.monotonic() - started < 5


def test_a_broken_expression_is_named() -> None:
    with pytest.raises(CheckpointError, match="not a regular expression"):
        Matcher(NAMES).regex("(", NAMES[0], "config.json: ignore")


def test_too_many_patterns_are_refused() -> None:
    matcher = Matcher(NAMES)
    with pytest.raises(CheckpointError, match="too many"):
        any(matcher.wildcard(f"{number}*", NAMES[0], "x") for number in range(MAX_PATTERNS + 1))


def selects(patterns: tuple[str, ...], how: How, module: str) -> bool:
    weight = Weight(module, "weight", (8, 8))
    return weight in Selector(patterns, how, Matcher(weight.names), "x")


@pytest.mark.parametrize(
    ("how", "pattern", "module", "expected"),
    [
        ("exact", "lm_head", "lm_head", True),
        ("exact", "model.layers.1", "model.layers.1.mlp.up_proj", True),
        ("exact", "model.layers.1", "model.layers.11.mlp.up_proj", False),
        ("exact", "gate", "model.layers.1.mlp.gate", True),
        ("exact", "gate", "model.layers.1.mlp.gate_proj", False),
        ("substring", "visual", "model.visual.blocks.0.mlp", True),
        ("substring", "layers.1", "model.layers.11.mlp", True),
        ("suffix", "o_proj", "model.layers.0.self_attn.o_proj", True),
        ("suffix", "proj", "model.layers.0.self_attn.o_proj", False),
        ("wildcard", "model.layers.*.self_attn*", "model.layers.3.self_attn.q_proj", True),
        ("wildcard", "*lm_head*", "lm_head", True),
        ("wildcard", "model.layers.[12].mlp*", "model.layers.3.mlp.up_proj", False),
        ("regex", r"re:.*\.mlp\..*", "model.layers.3.mlp.up_proj", True),
        ("regex", "model.layers.3.mlp", "model.layers.3.mlp.up_proj", False),
    ],
)
def test_each_way_of_naming_modules(how: How, pattern: str, module: str, expected: bool) -> None:
    assert selects((pattern,), how, module) == expected


@pytest.mark.parametrize("how", ["exact", "regex"])
@pytest.mark.parametrize(
    "name", ["language_model.model.layers.0.mlp.up_proj", "model.language_model.layers.0.mlp.up_proj"]
)
def test_a_multimodal_models_two_spellings_name_the_same_module(how: How, name: str) -> None:
    assert selects((name,), how, "model.language_model.layers.0.mlp.up_proj")


def test_ten_thousand_exact_names_cost_no_time() -> None:
    selector = Selector(tuple(f"model.layers.{n}.x" for n in range(10_000)), "regex", Matcher(NAMES), "x")
    started = time.process_time()  # of this process alone: the machine may be busy
    assert not any(Weight(name, "weight", (8, 8)) in selector for name in NAMES * 40)
    assert time.process_time() - started < 4
