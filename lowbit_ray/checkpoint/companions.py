"""Which tensors count as a quantization's companions although no scheme asked for them.

Formats write scales that their own config does not need (an observer's leftovers, scales of outputs). By name
and by size they are companions of a source weight; a tensor that only borrows such a name to carry other data
is larger than any scale could be, and is foreign.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowbit_ray.checkpoint.header import Tensor
from lowbit_ray.checkpoint.names import FUSED, Weight

__all__ = ["SUFFIXES", "is_companion", "largest_companion"]

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
"""Last parts of companions' names (formats.md 3.5)."""
LARGEST_SHARE = 0.5
"""Of the source weight's elements: a scale or zero point a group of two would have as many."""


def is_companion(name: str, tensor: Tensor, weights: Mapping[str, Weight]) -> bool:
    """Whether a tensor of canonical name `name` is by name and size a companion of some source weight."""
    module, _, suffix = name.rpartition(".")
    if suffix not in SUFFIXES:
        return False
    weight = weights.get(f"{module}.weight") or _first_shard(module, weights)
    if weight is None:
        return False
    return tensor.nbytes <= largest_companion(weight)


def largest_companion(weight: Weight) -> float:
    """Bytes of the largest scale that a weight could have: two a value, and a kilobyte for states of a format."""
    return max(2 * LARGEST_SHARE * weight.elements, 1024)


def _first_shard(module: str, weights: Mapping[str, Weight]) -> Weight | None:
    """The first of the weights that a fused module stands for."""
    parent, _, last = module.rpartition(".")
    shards = FUSED.get(last, ())
    return next((weights[name] for shard in shards if (name := f"{parent}.{shard}.weight") in weights), None)
