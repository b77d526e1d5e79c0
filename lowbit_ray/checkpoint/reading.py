"""One pass over a source and a candidate: where each source weight is, in how many bits, and what is left over.

The quantization config says what to look for (`formats/`), the headers say what is there (`stored.py`), and
what no weight accounts for is a companion by name or foreign.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lowbit_ray.checkpoint.companions import foreign_of
from lowbit_ray.checkpoint.config import KEYS, LEGACY_FILES, ModelConfig, QuantizationSource, read_config
from lowbit_ray.checkpoint.findings import Finding, finding_of, show
from lowbit_ray.checkpoint.formats import plan_for
from lowbit_ray.checkpoint.formats.scheme import Plan
from lowbit_ray.checkpoint.header import DTYPE_BITS, Headers, Tensor, read_headers
from lowbit_ray.checkpoint.kv_scales import check_kv_scales
from lowbit_ray.checkpoint.missing import missing_findings
from lowbit_ray.checkpoint.names import FUSED, Weight, aliases, source_weight
from lowbit_ray.checkpoint.patterns import Matcher
from lowbit_ray.checkpoint.precision import Precision, summarize
from lowbit_ray.checkpoint.stored import Candidate, Stored, store
from lowbit_ray.errors import CheckpointError

__all__ = ["Checkpoint", "Reading", "read_both", "read_checkpoint"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder's headers and configuration."""

    headers: Headers
    config: ModelConfig


@dataclass(frozen=True, slots=True)
class Reading:
    """All that one pass over both headers finds."""

    stored: tuple[Stored, ...]
    plan: Plan | None
    precision: Precision | None
    """The candidate's W·A·KV; None where its quantization config cannot be read."""
    findings: tuple[Finding, ...]
    foreign: tuple[Tensor, ...]
    """The largest first."""


def read_checkpoint(folder: Path) -> Checkpoint:
    """Headers and configuration of a folder; CheckpointError as their modules say."""
    return Checkpoint(read_headers(folder), read_config(folder))


def read_both(source: Checkpoint, candidate: Checkpoint) -> Reading:
    """Finds each source weight in the candidate, in one pass over both headers."""
    weights = {weight.name: weight for weight in map(source_weight, source.headers.tensors.values())}
    tensors = Candidate(candidate.headers.tensors.values())
    _add_head(weights, source.config, candidate.config, tensors)
    try:
        plan, problems = _plan(candidate.config, weights)
    except CheckpointError as error:
        return Reading((), None, None, (finding_of(error, "precision"),), ())
    findings = list(problems)
    stored: list[Stored] = []
    gone: list[Weight] = []
    for weight in weights.values():
        held = store(weight, weights, tensors, plan, _heads(source.config))
        if held is None:
            gone.append(weight)
        else:
            stored.append(held)
    findings += missing_findings(gone, weights, source.headers, candidate.headers)
    findings += [problem for item in stored for problem in item.problems]
    if plan is None and any(
        _is_narrow(tensor, source.headers) for tensor in candidate.headers.tensors.values()
    ):
        findings.insert(0, _undescribed())
    findings += check_kv_scales(weights, tensors, plan.kv if plan else None)
    findings += _uneven_shards(stored)
    reviews = plan.reviews if plan else ()
    needs_review = tuple(f"{review.where}: {review.summary}" for review in reviews)
    precision = summarize(stored, plan.kv if plan else None, plan.method if plan else None, needs_review)
    foreign = foreign_of(tensors.unused(), weights)
    foreign.sort(key=lambda tensor: (-tensor.nbytes, tensor.name))
    return Reading(tuple(stored), plan, precision, tuple(dict.fromkeys(findings)), tuple(foreign))


def _is_narrow(tensor: Tensor, source: Headers) -> bool:
    """Whether it holds narrow or packed numbers that the source does not have."""
    same = source.tensors.get(tensor.name)
    narrow = DTYPE_BITS[tensor.dtype] <= 8 or tensor.dtype in ("I32", "U32")
    return narrow and (same is None or same.dtype != tensor.dtype)


def _undescribed() -> Finding:
    """Engines report this as a missing file; here it names every place that was looked at."""
    return Finding(
        file="config.json",
        field=KEYS[0],
        found=f"nothing there, nor under {KEYS[1]}, nor in {', '.join(LEGACY_FILES)}",
        expected="the method and its settings, as the quantization tool writes them",
        summary="weights are quantized and nothing says how",
        rule="precision",
    )


def _plan(config: ModelConfig, weights: Mapping[str, Weight]) -> tuple[Plan | None, list[Finding]]:
    """The plan of the source that counts, and a finding for each other source that disagrees with it."""
    if not config.quantization:
        return None, []
    matcher = Matcher(_spoken_names(weights))
    plans = [plan_for(source, matcher) for source in config.quantization]
    first = plans[0]
    problems = []
    for source, other in zip(config.quantization[1:], plans[1:], strict=True):
        difference = _disagreement(first, other, weights.values())
        if difference is not None:
            problems.append(_disagree(config.quantization[0], source, *difference))
    return first, problems


def _spoken_names(weights: Mapping[str, Weight]) -> set[str]:
    """Every module name that a pattern may be held against, in all spellings."""
    modules = {weight.module for weight in weights.values()}
    parents = {module.rpartition(".")[0] for module in modules}
    shards = [*FUSED, *itertools.chain(*FUSED.values())]
    modules |= {f"{parent}.{shard}" for parent in parents for shard in shards}
    return {name for module in modules for name in aliases(module)}


def _disagreement(first: Plan, other: Plan, weights: Iterable[Weight]) -> tuple[str, str, str] | None:
    """(what, the first's, the other's) of the first thing in which two plans differ."""
    if (first.kv.bits if first.kv else 16) != (other.kv.bits if other.kv else 16):
        return "kv", str(first.kv), str(other.kv)
    for weight in weights:
        if weight.quantizable:
            ours, theirs = (
                (scheme.weights.bits, scheme.activation_bits, scheme.group_size) if scheme else (16, 16, None)
                for scheme in (first.scheme(weight), other.scheme(weight))
            )
            if ours != theirs:
                return weight.module, _triple(ours), _triple(theirs)
    return None


def _triple(value: tuple[int, int, int | None]) -> str:
    return f"W{value[0]}A{value[1]}" + (f" group {value[2]}" if value[2] else "")


def _disagree(
    first: QuantizationSource, other: QuantizationSource, what: str, ours: str, theirs: str
) -> Finding:
    return Finding(
        file=other.file,
        field=other.field,
        found=f"{theirs} for {what}",
        expected=f"{ours} as in {first.where}",
        summary="two places that describe the quantization disagree",
        rule="precision",
    )


def _add_head(
    weights: dict[str, Weight], source: ModelConfig, config: ModelConfig, tensors: Candidate
) -> None:
    """A tied source's head, where the candidate holds or needs one of its own: it stands for the embeddings."""
    embedding = next((weight for weight in weights.values() if weight.region == "embedding"), None)
    if embedding is None or "lm_head.weight" in weights:
        return
    own = any(tensors.get(f"lm_head.{suffix}") for suffix in ("weight", "qweight", "weight_packed"))
    if own or (_is_tied(source) and not _is_tied(config)):
        weights["lm_head.weight"] = Weight("lm_head", "weight", embedding.shape)


def _is_tied(config: ModelConfig) -> bool:
    """Whether the head is the embeddings; true where the configuration does not say."""
    return config.data.get("tie_word_embeddings", config.text.get("tie_word_embeddings", True)) is not False


def _heads(config: ModelConfig) -> tuple[int, int] | None:
    heads = config.count("num_attention_heads")
    return None if heads is None else (heads, config.count("num_key_value_heads") or heads)


def _uneven_shards(stored: list[Stored]) -> Iterable[Finding]:
    """Engines fuse these modules on load; shards of different precision are refused, or merged by maximum."""
    by_name = {item.weight.name: item for item in stored}
    for item in stored:
        parent, _, last = item.weight.module.rpartition(".")
        for shards in FUSED.values():
            if last == shards[0] and item.weight.leaf == "weight":
                others = [by_name.get(f"{parent}.{shard}.weight") for shard in shards]
                kinds = {
                    shard: (f"W{other.bits}A{other.activation_bits}", other.group_size)
                    for shard, other in zip(shards, others, strict=True)
                    if other is not None
                }
                if len(set(kinds.values())) > 1:
                    yield Finding(
                        file="",
                        field=f"{parent}.{{{','.join(kinds)}}}",
                        found=show(", ".join(f"{shard} {kind[0]}" for shard, kind in kinds.items())),
                        expected="one scheme for modules that engines fuse",
                        summary="the shards of one fused module are quantized differently",
                        rule="precision",
                    )
