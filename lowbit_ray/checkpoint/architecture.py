"""config.json of the candidate against the source's: all is equal but what the table lets differ.

A field that only one side has counts as equal if it holds what its absence means
(`data/config_fields.yaml`, or what follows from other fields). RoPE is compared in one spelling; code, and
keys that change the computation, are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lowbit_ray.checkpoint.findings import Finding, show
from lowbit_ray.checkpoint.rope import ROPE_FIELDS, read_rope

__all__ = ["compare_architecture"]

TABLE = Path(__file__).parent / "data" / "config_fields.yaml"
NESTED = frozenset({"text_config", "vision_config", "audio_config", "thinker_config"})
"""Objects that are configurations of their own, compared field by field with the same table."""
MISSING = object()
TIE = "tie_word_embeddings"
MAX_FINDINGS = 50


@dataclass(frozen=True, slots=True)
class _Table:
    may_differ: frozenset[str]
    neutral: Mapping[str, Any]
    refused: Mapping[str, str]


@cache
def _table() -> _Table:
    data = yaml.safe_load(TABLE.read_text())
    return _Table(frozenset(data["may_differ"]), data["neutral"], data["refused"])


def compare_architecture(source: Mapping[str, Any], candidate: Mapping[str, Any]) -> tuple[Finding, ...]:
    """All differences that break the contract, and keys of the candidate that are refused, at most 50."""
    findings = [*_refused(candidate), *_compare(source, candidate, "", _inner_ties(source, candidate))]
    return tuple(findings[:MAX_FINDINGS])


def _inner_ties(source: Mapping[str, Any], candidate: Mapping[str, Any]) -> tuple[bool, bool]:
    """What text_config says where the top level does not; tied where neither does."""
    texts = (config.get("text_config") for config in (source, candidate))
    ours, theirs = (not isinstance(text, dict) or text.get(TIE, True) is not False for text in texts)
    return ours, theirs


def _refused(candidate: Mapping[str, Any]) -> Iterator[Finding]:
    """Keys that make an engine run other code, or compute something else, wherever they stand."""
    for path, reason in _table().refused.items():
        for scope in ("", *sorted(NESTED)):
            place = f"{scope}.{path}" if scope else path
            value = _at(candidate, place)
            if value not in (MISSING, None, False, {}, []):
                yield Finding(
                    file="config.json",
                    field=place,
                    found=show(value),
                    expected="no such field",
                    summary=f"refused: it {reason}",
                    rule="execution",
                )


def _at(data: object, path: str) -> object:
    for key in path.split("."):
        data = data.get(key, MISSING) if isinstance(data, dict) else MISSING
    return data


def _compare(
    source: Mapping[str, Any], candidate: Mapping[str, Any], prefix: str, outer: tuple[bool, bool]
) -> Iterator[Finding]:
    table, tied = _table(), _tied(source, candidate, outer)
    skipped = table.may_differ | ROPE_FIELDS | table.refused.keys()
    for key in sorted((source.keys() | candidate.keys()) - skipped):
        ours, theirs = source.get(key, MISSING), candidate.get(key, MISSING)
        if key in NESTED and isinstance(ours, dict) and isinstance(theirs, dict):
            yield from _compare(ours, theirs, f"{prefix}{key}.", tied)
        elif key == TIE:
            # a tied head may become one of its own, whose weight is then required; an own one may not go
            if tied[1] and not tied[0]:
                yield _difference(f"{prefix}{key}", theirs, ours, "drops the source's own head")
        elif not _same(key, ours, theirs, source, candidate):
            summary = "unknown key" if ours is MISSING else "differs from the source"
            yield _difference(f"{prefix}{key}", theirs, ours, summary)
    yield from _compare_rope(source, candidate, prefix)


def _tied(
    source: Mapping[str, Any], candidate: Mapping[str, Any], outer: tuple[bool, bool]
) -> tuple[bool, bool]:
    """Whether the head is the embeddings, by the source and by the candidate; what a part leaves out it inherits."""
    ours, theirs = (
        config.get(TIE, inherited) is not False
        for config, inherited in zip((source, candidate), outer, strict=True)
    )
    return ours, theirs


def _same(
    key: str, ours: object, theirs: object, source: Mapping[str, Any], candidate: Mapping[str, Any]
) -> bool:
    if ours is MISSING:
        ours = _implied(key, candidate)
    if theirs is MISSING:
        theirs = _implied(key, source)
    if key.endswith("_token_id") and _as_list(ours) == _as_list(theirs):
        return True
    return _equal(ours, theirs)


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _implied(key: str, config: Mapping[str, Any]) -> object:
    """What the absence of `key` means, None where nothing follows; `config` is the one that has it."""
    table = _table()
    if key in table.neutral:
        return table.neutral[key]
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if key == "head_dim" and type(heads) is int and type(hidden) is int and heads > 0:
        return hidden // heads
    if key == "num_key_value_heads":
        return heads
    layers = config.get("num_hidden_layers")
    if key == "layer_types" and type(layers) is int and 0 < layers < 10_000:
        return _implied_layers(layers, config)
    if key == "max_window_layers" and not config.get("use_sliding_window"):
        return config.get(key)
    return None


def _implied_layers(layers: int, config: Mapping[str, Any]) -> list[str]:
    interval = config.get("full_attention_interval")
    if type(interval) is int and interval > 0:
        return ["linear_attention" if (layer + 1) % interval else "full_attention" for layer in range(layers)]
    return ["full_attention"] * layers


def _equal(left: object, right: object) -> bool:
    """Equality of JSON values: 1 and 1.0 are equal, true and 1 are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    return left == right


def _compare_rope(source: Mapping[str, Any], candidate: Mapping[str, Any], prefix: str) -> Iterator[Finding]:
    spellings = read_rope(source)
    for spelling, found in read_rope(candidate).items():
        expected = spellings.get(spelling) or next(iter(spellings.values()))
        for layer in sorted(expected.keys() | found.keys()):
            ours, theirs = expected.get(layer, {}), found.get(layer, {})
            for key in sorted(ours.keys() | theirs.keys()):
                if not _equal(ours.get(key), theirs.get(key)):
                    place = key if layer == "all" else f"{layer}.{key}"
                    yield _difference(
                        f"{prefix}{place}",
                        theirs.get(key, MISSING),
                        ours.get(key, MISSING),
                        f"the RoPE parameter differs from the source (read from {spelling})",
                    )


def _difference(field: str, found: object, expected: object, summary: str) -> Finding:
    texts = ["no such field" if value is MISSING else show(value) for value in (found, expected)]
    return Finding(
        file="config.json",
        field=show(field, 200),
        found=texts[0],
        expected=texts[1],
        summary=summary,
        rule="configuration",
    )
