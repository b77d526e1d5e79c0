"""Names of weights: what a module is, and by which other names a checkpoint may store it.

Engines and exporters fuse projections (q, k, v → qkv), split them, stack experts, and prefix the language
model of a multimodal one differently. All of it is recognised here, by name and shape, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from lowbit_ray.checkpoint.header import Tensor

__all__ = ["FUSED", "Region", "Weight", "aliases", "canonical", "source_weight", "spellings"]

Region = Literal["linear", "embedding", "head", "vision", "other"]

FUSED: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
"""One module that holds the rows of several, in this order. Engines fuse these on load, so that the shards of
one must be quantized alike."""

_PREFIXES = (
    ("language_model.model.", "model.language_model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.lm_head.", "lm_head."),
    ("visual.", "model.visual."),
)
"""Spellings of multimodal checkpoints before and after transformers 4.52 moved the language model."""

_EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "embeddings")
_HEADS = ("lm_head", "embed_out")
_VISION = ("visual", "vision_tower", "vision_model", "multi_modal_projector")


def aliases(module: str) -> tuple[str, ...]:
    """A canonical module name and its other spellings."""
    others = [
        prefix + module[len(replacement) :]
        for prefix, replacement in _PREFIXES
        if f"{module}.".startswith(replacement)
    ]
    return (module, *others)


def canonical(name: str) -> str:
    """The spelling that this package compares by."""
    for prefix, replacement in _PREFIXES:
        if name.startswith(prefix):
            return replacement + name[len(prefix) :]
    return name


@dataclass(frozen=True)
class Weight:
    """A weight of the source, or a piece of the candidate that stands for one."""

    module: str
    """Canonical module name."""
    leaf: str
    """`weight`, `bias`; empty for a parameter that is no module's weight (stacked experts)."""
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.module}.{self.leaf}" if self.leaf else self.module

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def lead(self) -> tuple[int, ...]:
        """Dimensions before the matrix: the number of stacked experts, else nothing."""
        return self.shape[:-2]

    @property
    def rows(self) -> int:
        """Output dimension."""
        return self.shape[-2] if len(self.shape) > 1 else self.shape[0]

    @property
    def columns(self) -> int:
        """Input dimension."""
        return self.shape[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """Module names by which a config may speak of it, this package's first."""
        return aliases(self.module)

    @cached_property
    def region(self) -> Region:
        """Which part of the model it belongs to, as the precision is reported."""
        parts = self.module.split(".")
        if any(part in _VISION for part in parts):
            return "vision"
        if not self.quantizable:
            return "other"
        if parts[-1] in _EMBEDDINGS:
            return "embedding"
        if parts[-1] in _HEADS:
            return "head"
        return "linear"

    @property
    def quantizable(self) -> bool:
        """A matrix, or matrices stacked by expert; vectors and convolutions stay as they are."""
        if not self.elements:
            return False
        if self.leaf == "weight":
            return len(self.shape) == 2
        return self.leaf == "" and len(self.shape) == 3 and ".experts." in self.module

    @property
    def module_class(self) -> str:
        """PyTorch's class, as configs target it."""
        return {"embedding": "Embedding"}.get(self.region, "Linear" if self.quantizable else "Module")


def source_weight(tensor: Tensor) -> Weight:
    """The source's tensor as a weight."""
    name = canonical(tensor.name)
    module, _, leaf = name.rpartition(".")
    if leaf in ("weight", "bias") and module:
        return Weight(module, leaf, tensor.shape)
    return Weight(name, "", tensor.shape)


def spellings(
    weight: Weight, source: Mapping[str, Weight], heads: tuple[int, int] | None = None
) -> Iterator[tuple[Weight, ...]]:
    """The ways in which a candidate may hold `weight`: as it is, fused with its siblings, split, by expert.

    Each is a tuple of pieces that are all there if that way was taken. `source` maps canonical names; `heads`
    are the query and the KV heads, by which a fused qkv splits.
    """
    yield (weight,)
    if not weight.shape:
        return
    parent, _, last = weight.module.rpartition(".")
    prefix = f"{parent}." if parent else ""
    for fused, shards in FUSED.items():
        if last in shards:
            siblings = [source.get(Weight(prefix + shard, weight.leaf, ()).name) for shard in shards]
            if all(sibling is not None and sibling.shape[1:] == weight.shape[1:] for sibling in siblings):
                rows = sum(sibling.shape[0] for sibling in siblings if sibling is not None)
                yield (Weight(prefix + fused, weight.leaf, (rows, *weight.shape[1:])),)
        elif last == fused and weight.leaf:
            yield from _split(weight, prefix, shards, heads)
    if weight.leaf == "" and weight.quantizable:
        yield from _by_expert(weight, prefix, last)


def _split(
    weight: Weight, prefix: str, shards: tuple[str, ...], heads: tuple[int, int] | None
) -> Iterator[tuple[Weight, ...]]:
    """A fused module of the source as its shards: equal parts, or by heads for q, k and v."""
    shares = (1,) * len(shards)
    if shards[0] == "q_proj":
        shares = (heads[0], heads[1], heads[1]) if heads else ()
    elif shards[0] != "gate_proj":
        return  # linear attention's parts are of unequal widths that the names do not tell
    if shares and sum(shares) and weight.shape[0] % sum(shares) == 0:
        unit = weight.shape[0] // sum(shares)
        pairs = zip(shards, shares, strict=True)
        yield tuple(Weight(prefix + shard, weight.leaf, (unit * n, *weight.shape[1:])) for shard, n in pairs)


def _by_expert(weight: Weight, prefix: str, last: str) -> Iterator[tuple[Weight, ...]]:
    """Stacked experts [experts, rows, columns] as one module an expert and projection."""
    experts, rows, columns = weight.shape
    shards = FUSED.get(last, (last,))
    if experts <= 4096 and rows % len(shards) == 0:
        shape = (rows // len(shards), columns)
        yield tuple(
            Weight(f"{prefix}{e}.{shard}", "weight", shape) for e in range(experts) for shard in shards
        )
