"""The checkpoint contract: is the candidate the source, only stored in fewer bits?

1. config.json has the source's architecture and RoPE, and nothing that makes an engine compute otherwise;
2. every place that describes the quantization says the same;
3. every source weight is there in some form, with its shape and with the companions its scheme needs;
4. tensors that are neither a source weight nor a companion of one ("foreign") hold at most the rules' share
   of the source's bytes;
5. no pickle and no program lies beside the weights.

A broken contract is a verdict, not an error: all findings come back at once. Only bytes that cannot be read
as a checkpoint raise CheckpointError.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from lowbit_ray.checkpoint.architecture import compare_architecture
from lowbit_ray.checkpoint.companions import is_companion
from lowbit_ray.checkpoint.config import ModelConfig, QuantizationSource, read_config
from lowbit_ray.checkpoint.files import list_files, unsafe_files
from lowbit_ray.checkpoint.findings import Finding, finding_of, show
from lowbit_ray.checkpoint.formats import plan_for
from lowbit_ray.checkpoint.formats.scheme import Plan
from lowbit_ray.checkpoint.header import Headers, Tensor, read_headers
from lowbit_ray.checkpoint.kv_scales import check_kv_scales
from lowbit_ray.checkpoint.names import FUSED, Weight, aliases, canonical, source_weight
from lowbit_ray.checkpoint.patterns import Matcher
from lowbit_ray.checkpoint.precision import Precision, summarize
from lowbit_ray.checkpoint.stored import Candidate, Stored, store
from lowbit_ray.errors import CheckpointError
from lowbit_ray.rules import Rules

__all__ = [
    "Checkpoint",
    "Contract",
    "Reading",
    "Track",
    "check_contract",
    "read_checkpoint",
    "read_precision",
]

Track = Literal["checkpoint", "engine"]
MAX_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder's headers and configuration."""

    headers: Headers
    config: ModelConfig


class Contract(BaseModel):
    """The verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kept: bool
    findings: tuple[Finding, ...]
    """What breaks it first, then what is only worth knowing; at most 100."""
    foreign_share: float
    """Bytes of foreign tensors / bytes of the source's tensors."""
    foreign: tuple[str, ...]
    """Names of foreign tensors, the largest first, at most 20."""
    source_gib: float
    """Bytes of the source's tensors / 2^30."""
    stored_gib: float
    """Bytes of the candidate's tensors / 2^30."""
    precision: Precision | None
    """None when the quantization config cannot be read."""

    @property
    def reason(self) -> str | None:
        """Why it is broken, in one line; None when it is kept."""
        broken = [finding for finding in self.findings if finding.breaks]
        if not broken:
            return None
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return f"{broken[0]}{more}"


@dataclass(frozen=True, slots=True)
class Reading:
    """All that one pass over both headers finds."""

    stored: tuple[Stored, ...]
    plan: Plan | None
    precision: Precision | None
    findings: tuple[Finding, ...]
    foreign: tuple[Tensor, ...]
    """The largest first."""


def read_checkpoint(folder: Path) -> Checkpoint:
    """Headers and configuration of a folder; CheckpointError as their modules say."""
    return Checkpoint(read_headers(folder), read_config(folder))


def check_contract(
    source_dir: Path, candidate_dir: Path, rules: Rules, track: Track = "checkpoint"
) -> Contract:
    """Holds the candidate against its source. Raises CheckpointError when either cannot be read."""
    source, candidate = read_checkpoint(source_dir), read_checkpoint(candidate_dir)
    return judge(source, candidate, read_both(source, candidate), rules, track)


def judge(
    source: Checkpoint, candidate: Checkpoint, reading: Reading, rules: Rules, track: Track
) -> Contract:
    """The verdict over a reading, the files, and both configurations."""
    limit = rules.contract.foreign_tensor_share
    foreign_bytes = sum(tensor.nbytes for tensor in reading.foreign)
    share = foreign_bytes / max(source.headers.nbytes, 1)
    folder = candidate.headers.folder
    findings = [
        *compare_architecture(source.config.data, candidate.config.data),
        *reading.findings,
        *_foreign(reading.foreign, share, limit),
        *unsafe_files(folder, list_files(folder), breaks=track == "checkpoint"),
        *_unindexed(candidate.headers),
    ]
    findings.sort(key=lambda finding: not finding.breaks)
    return Contract(
        kept=not any(finding.breaks for finding in findings),
        findings=tuple(findings[:MAX_FINDINGS]),
        foreign_share=share,
        foreign=tuple(tensor.name for tensor in reading.foreign[:20]),
        source_gib=source.headers.nbytes / 2**30,
        stored_gib=candidate.headers.nbytes / 2**30,
        precision=reading.precision,
    )


def read_precision(source: Checkpoint, candidate: Checkpoint) -> Precision | None:
    """The candidate's W·A·KV; None when its quantization config cannot be read."""
    return read_both(source, candidate).precision


def read_both(source: Checkpoint, candidate: Checkpoint) -> Reading:
    """Finds each source weight in the candidate, in one pass over both headers."""
    weights = {weight.name: weight for weight in map(source_weight, source.headers.tensors.values())}
    tensors = Candidate(candidate.headers.tensors.values())
    _add_head(weights, source.config, tensors)
    try:
        plan, problems = _plan(candidate.config, weights)
    except CheckpointError as error:
        return Reading((), None, None, (finding_of(error, "precision"),), ())
    findings = list(problems)
    stored: list[Stored] = []
    for weight in weights.values():
        held = store(weight, weights, tensors, plan, _heads(source.config))
        if held is None:
            findings.append(_missing(weight, source.headers))
        else:
            stored.append(held)
            findings += held.problems
    findings += check_kv_scales(weights, tensors, plan.kv if plan else None)
    findings += _uneven_shards(stored)
    reviews = plan.reviews if plan else ()
    needs_review = tuple(f"{review.where}: {review.summary}" for review in reviews)
    precision = summarize(stored, plan.kv if plan else None, plan.method if plan else None, needs_review)
    foreign = [tensor for name, tensor in tensors.unused().items() if not is_companion(name, tensor, weights)]
    foreign.sort(key=lambda tensor: (-tensor.nbytes, tensor.name))
    return Reading(tuple(stored), plan, precision, tuple(dict.fromkeys(findings)), tuple(foreign))


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


def _add_head(weights: dict[str, Weight], config: ModelConfig, tensors: Candidate) -> None:
    """A tied source's head, where the candidate holds one of its own: it stands for the embeddings."""
    embedding = next((weight for weight in weights.values() if weight.region == "embedding"), None)
    if embedding is None or "lm_head.weight" in weights:
        return
    own = any(tensors.get(f"lm_head.{suffix}") for suffix in ("weight", "qweight", "weight_packed"))
    if own:
        weights["lm_head.weight"] = Weight("lm_head", "weight", embedding.shape)


def _heads(config: ModelConfig) -> tuple[int, int] | None:
    heads = config.count("num_attention_heads")
    return None if heads is None else (heads, config.count("num_key_value_heads") or heads)


def _missing(weight: Weight, headers: Headers) -> Finding:
    names = {canonical(name): tensor for name, tensor in headers.tensors.items()}
    original = names.get(weight.name)
    return Finding(
        file="",
        field=original.name if original else weight.name,
        found="no tensor that could be it",
        expected=f"shape {list(weight.shape)} in any form",
        summary="a weight of the source is missing",
        rule="source_weights",
    )


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


def _foreign(foreign: tuple[Tensor, ...], share: float, limit: float) -> Iterable[Finding]:
    if foreign:
        largest = foreign[0]
        yield Finding(
            file=largest.file,
            field=largest.name,
            found=f"{share:.3%} of the source's bytes in {len(foreign)} tensors",
            expected=f"at most {limit:.0%}",
            summary="tensors that are neither a source weight nor a companion of one",
            rule="foreign_tensors",
            breaks=share > limit,
        )


def _unindexed(headers: Headers) -> Iterable[Finding]:
    for file in headers.unindexed:
        yield Finding(
            file=file,
            field="",
            found="a safetensors file",
            expected="every safetensors file named in model.safetensors.index.json",
            summary="the index does not name this file, so that no engine would load it",
            rule="files",
        )
