"""Which tensors count as a quantization's companions although no scheme asked for them.

Formats write scales that their own config does not need (an observer's leftovers, scales of outputs). By name
and by size they are companions of a source weight; tensors that only borrow such names to carry other data
are together larger than any scale could be, and are foreign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lowbit_ray.checkpoint.header import Tensor
from lowbit_ray.checkpoint.names import FUSED, Weight

__all__ = ["SUFFIXES", "foreign_of", "largest_companion"]

_SIDES = ("input", "weight", "output")
SUFFIXES = frozenset(
    {
        *(
            f"{side}_{what}"
            for side in _SIDES
            for what in ("global_scale", "scale", "shape", "zero_point", "g_idx")
        ),
        *("weight_scale_inv", "weight_scale_2", "input_scale_2", "input_scale_ub", "activation_scale"),
        *("qzeros", "scales", "g_idx", "bias"),
        *("k_scale", "v_scale", "q_scale", "kv_scale", "k_zero_point", "v_zero_point", "q_zero_point"),
        *("pre_quant_scale", "act_global_scale", "weight_global_scale"),
        *("forward_hadamard_matrix", "backward_hadamard_matrix"),
    }
)
"""Last parts of companions' names, as quantization tools write them."""
LARGEST_SHARE = 0.5
"""Of the source weight's elements: a scale or zero point a group of two would have as many."""
LEFTOVER_SHARE = 1 / 8
"""Bytes of all leftovers of a weight over its elements: the 16-bit scales of groups of 16."""
LEAST_BYTES = 1024
"""What the states of a format take, however small the weight is."""


def foreign_of(unused: Mapping[str, Tensor], weights: Mapping[str, Weight]) -> list[Tensor]:
    """The tensors, by canonical name, that are by name or size no companion of any source weight.

    Of each weight the smallest count as companions, as long as they are together no larger than scales could be.
    """
    held: Counter[str] = Counter()
    foreign = []
    for name, tensor in sorted(unused.items(), key=lambda item: (item[1].nbytes, item[0])):
        weight = _weight_of(name, weights)
        if weight is None or held[weight.name] + tensor.nbytes > _largest_leftover(weight):
            foreign.append(tensor)
        else:
            held[weight.name] += tensor.nbytes
    return foreign


def _weight_of(name: str, weights: Mapping[str, Weight]) -> Weight | None:
    """The source weight whose companion a tensor is by its name."""
    module, _, suffix = name.rpartition(".")
    if suffix not in SUFFIXES:
        return None
    return weights.get(f"{module}.weight") or _first_shard(module, weights)


def _largest_leftover(weight: Weight) -> float:
    return max(LEFTOVER_SHARE * weight.elements, LEAST_BYTES)


def largest_companion(weight: Weight) -> float:
    """Bytes of the largest scale that a weight could have: two a value, and a kilobyte for states of a format."""
    return max(2 * LARGEST_SHARE * weight.elements, LEAST_BYTES)


def _first_shard(module: str, weights: Mapping[str, Weight]) -> Weight | None:
    """The first of the weights that a fused module stands for."""
    parent, _, last = module.rpartition(".")
    shards = FUSED.get(last, ())
    return next((weights[name] for shard in shards if (name := f"{parent}.{shard}.weight") in weights), None)
