"""W·A·KV of a checkpoint, read from its bytes: what is stored, not what is claimed.

Weights: for each source weight the bits that its tensors' shapes mean, a histogram by share of parameters,
and a label by majority ("mixed" below 95 %). Embeddings and head are reported apart, as every format treats
them apart. Activations and KV cannot be seen in the bytes; they come from the quantization config and, once
the engine runs, from what it says (`executed.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from lowbit_ray.checkpoint.formats.scheme import KVScheme
from lowbit_ray.checkpoint.names import Region
from lowbit_ray.checkpoint.stored import Stored
from lowbit_ray.rules import _Frozen

__all__ = ["DeclaredPrecision", "Precision", "RegionPrecision", "parse_label", "summarize"]

MIXED_BELOW = 0.95
"""Share of parameters under which the majority's width does not describe the whole."""
REGIONS: tuple[Region, ...] = ("linear", "embedding", "head", "vision", "other")
LABEL = re.compile(r"\s*W(\d{1,2})A(\d{1,2})KV(\d{1,2})\s*", re.IGNORECASE)


class RegionPrecision(_Frozen):
    """One part of the model."""

    region: Region
    parameters: int
    """Of the source."""
    bits: dict[int, float]
    """Weight bits → share of the region's parameters."""
    effective_bits: float
    """Stored bits a parameter: all bytes of the weights and of their scales and zero points."""
    group_sizes: tuple[int, ...]
    """Distinct group sizes of quantized weights, ascending; empty when scales are by row or tensor."""


class Precision(_Frozen):
    """What the checkpoint's bytes and config say."""

    activations: int
    """Bits of the linear layers' inputs."""
    kv: int
    """Bits of a KV-cache element, as the checkpoint asks for it; 16 when it does not."""
    label: str
    """`W8A8KV8`, followed by ` mixed` when under 95 % of the parameters have these bits."""
    weights: int
    """Bits of the linear layers' weights, the majority by parameters."""
    weights_average: float
    """Mean bits of the linear layers' weights by parameters, without scales."""
    mixed: bool
    """Whether under 95 % of the linear layers' parameters have the label's bits."""
    histogram: dict[int, float]
    """Weight bits → share of all parameters."""
    effective_bits: float
    """Stored bits a parameter over the whole model."""
    group_sizes: tuple[int, ...]
    """Distinct group sizes in the linear layers."""
    embeddings: int | None
    """Bits of the embeddings' weights."""
    head: int | None
    """Bits of the head's weights; the embeddings' where they are tied."""
    regions: tuple[RegionPrecision, ...]
    method: str | None
    """Quantization method as vLLM names it, None for a plain checkpoint."""
    needs_review: tuple[str, ...] = ()
    """What neither bytes nor config can show, each with its place."""


class DeclaredPrecision(_Frozen):
    """What the participant claims."""

    weights: int
    activations: int
    kv: int

    @property
    def label(self) -> str:
        return f"W{self.weights}A{self.activations}KV{self.kv}"


def parse_label(text: str) -> DeclaredPrecision | None:
    """`W4A16KV8` as numbers; None when it is not of that form."""
    match = LABEL.fullmatch(text)
    if match is None:
        return None
    weights, activations, kv = (int(group) for group in match.groups())
    return DeclaredPrecision(weights=weights, activations=activations, kv=kv)


def summarize(
    stored: Iterable[Stored], kv: KVScheme | None, method: str | None, needs_review: tuple[str, ...] = ()
) -> Precision:
    """The precision of all weights together."""
    held = list(stored)
    regions = tuple(
        _region(name, part) for name in REGIONS if (part := [s for s in held if s.weight.region == name])
    )
    by_region = {region.region: region for region in regions}
    # a model without linear layers is described by all of its weights
    linear = [item for item in held if item.weight.region == "linear"] or held
    weights, share = _majority(linear, lambda item: item.bits)
    activations, active = _majority(linear, lambda item: item.activation_bits)
    mixed = min(share, active) < MIXED_BELOW
    kv_bits = kv.bits if kv else 16
    embedding, head = (_main_bits(by_region.get(name)) for name in ("embedding", "head"))
    return Precision(
        activations=activations,
        kv=kv_bits,
        label=f"W{weights}A{activations}KV{kv_bits}{' mixed' if mixed else ''}",
        weights=weights,
        weights_average=round(_mean_bits(linear), 3),
        mixed=mixed,
        histogram=_shares(held),
        effective_bits=round(_effective_bits(held), 4),
        group_sizes=_group_sizes(linear),
        embeddings=embedding,
        head=embedding if head is None else head,
        regions=regions,
        method=method,
        needs_review=needs_review,
    )


def _region(name: Region, held: list[Stored]) -> RegionPrecision:
    return RegionPrecision(
        region=name,
        parameters=sum(item.weight.elements for item in held),
        bits=_shares(held),
        effective_bits=round(_effective_bits(held), 4),
        group_sizes=_group_sizes(held),
    )


def _main_bits(region: RegionPrecision | None) -> int | None:
    return max(region.bits, key=lambda bits: region.bits[bits]) if region else None


def _majority(held: list[Stored], bits: Callable[[Stored], int]) -> tuple[int, float]:
    """The width that most parameters have, and their share; the wider one if two are equal."""
    counts: Counter[int] = Counter()
    for item in held:
        counts[bits(item)] += item.weight.elements
    if not counts:
        return 16, 1.0
    width = max(counts, key=lambda key: (counts[key], key))
    return width, counts[width] / max(counts.total(), 1)


def _shares(held: list[Stored]) -> dict[int, float]:
    total = max(sum(item.weight.elements for item in held), 1)
    counts: Counter[int] = Counter()
    for item in held:
        counts[item.bits] += item.weight.elements
    return {bits: round(counts[bits] / total, 6) for bits in sorted(counts)}


def _mean_bits(held: list[Stored]) -> float:
    return sum(item.bits * item.weight.elements for item in held) / max(
        sum(item.weight.elements for item in held), 1
    )


def _effective_bits(held: list[Stored]) -> float:
    return 8 * sum(item.nbytes for item in held) / max(sum(item.weight.elements for item in held), 1)


def _group_sizes(held: list[Stored]) -> tuple[int, ...]:
    return tuple(sorted({item.group_size for item in held if item.quantized and item.group_size}))
