"""RoPE parameters in one spelling, so that equal ones compare equal.

transformers up to 4 writes `rope_theta` and `rope_scaling` (null, or an object with `type` or `rope_type`);
transformers 5 writes `rope_parameters`, or one such object by layer type. Older Gemma configs keep the
sliding layers' base in `rope_local_base_freq`. `partial_rotary_factor` stands beside or inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ROPE_FIELDS", "Rope", "read_rope"]

ROPE_FIELDS = frozenset(
    {
        "partial_rotary_factor",
        "rope_local_base_freq",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "rotary_pct",
    }
)
DEFAULT_THETA = 10000.0
LAYER_TYPES = ("full_attention", "sliding_attention", "linear_attention", "chunked_attention")
_TYPES = {"mrope": "default", "su": "longrope"}
"""Names that later versions replaced."""

Rope = Mapping[str, Mapping[str, Any]]
"""Layer type (`all` where there is one set) → parameter → value."""


def read_rope(config: Mapping[str, Any]) -> dict[str, Rope]:
    """Each spelling that the config uses → the parameters it gives; `old` alone when it uses none."""
    found: dict[str, Rope] = {}
    new = config.get("rope_parameters")
    if isinstance(new, dict):
        by_layer = {
            key: value for key, value in new.items() if key in LAYER_TYPES and isinstance(value, dict)
        }
        layers = by_layer or {"all": new}
        found["rope_parameters"] = {layer: _normal(value, config) for layer, value in layers.items()}
    if not found or "rope_theta" in config or config.get("rope_scaling") is not None:
        found["rope_theta, rope_scaling"] = _old(config)
    return found


def _old(config: Mapping[str, Any]) -> Rope:
    scaling = config.get("rope_scaling")
    if scaling is not None and not isinstance(scaling, dict):
        scaling = {"rope_type": scaling}  # not valid; differs from every valid one
    full = _normal({"rope_theta": config.get("rope_theta", DEFAULT_THETA), **(scaling or {})}, config)
    if config.get("rope_local_base_freq") is None:
        return {"all": full}
    local = _normal({"rope_theta": config["rope_local_base_freq"]}, config)
    return {"full_attention": full, "sliding_attention": local}


def _normal(parameters: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """One parameter set with its defaults written out and its aliases replaced."""
    values = {key: value for key, value in parameters.items() if value is not None}
    kind = values.pop("type", None)
    kind = values.pop("rope_type", kind) or "default"
    values["rope_type"] = _TYPES.get(kind, kind) if isinstance(kind, str) else kind
    values.setdefault("rope_theta", config.get("rope_theta", DEFAULT_THETA))
    outside = config.get("partial_rotary_factor", config.get("rotary_pct"))
    values.setdefault("partial_rotary_factor", 1.0 if outside is None else outside)
    if "mrope_section" in values:
        values.setdefault("mrope_interleaved", False)
    return values
