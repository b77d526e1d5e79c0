"""compressed-tensors' QuantizationArgs: one tensor's numbers, as configs write them and presets name them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.errors import CheckpointError

__all__ = ["Args", "load_presets", "read_args"]

PRESETS = Path(__file__).parent.parent / "data" / "presets.yaml"
STRATEGIES = ("tensor", "channel", "group", "block", "token", "tensor_group", "attn_head")
KNOWN = frozenset(
    {
        "num_bits",
        "type",
        "symmetric",
        "strategy",
        "group_size",
        "block_structure",
        "dynamic",
        "actorder",
        "scale_dtype",
        "zp_dtype",
        "observer",
        "observer_kwargs",
    }
)


@dataclass(frozen=True, slots=True)
class Args:
    """How one tensor's numbers are stored and scaled."""

    bits: int
    kind: Literal["int", "float"]
    strategy: str
    group: int
    """Group size; 0 where the strategy has none."""
    block: tuple[int, int]
    static: bool
    """Whether its scale stands in the checkpoint (a tensor_group's global scale does even if `local`)."""
    symmetric: bool
    act_order: bool
    """Whether columns are permuted, so that a g_idx is needed."""
    byte_scale: bool
    """Whether scales are powers of two in bytes (MX formats)."""


@cache
def load_presets() -> dict[str, dict[str, Any]]:
    """compressed-tensors' preset schemes by upper-case name."""
    presets: dict[str, dict[str, Any]] = yaml.safe_load(PRESETS.read_text())["presets"]
    return presets


def read_args(fields: Fields | None) -> Args | None:
    """The args under one key; None when it is absent or null. CheckpointError names the field."""
    if fields is None:
        return None
    fields.only(KNOWN)
    group = fields.group("group_size", default=-1)
    block = (
        fields.pair("block_structure") if not isinstance(fields.data.get("block_structure"), str) else None
    )
    default = "channel" if fields.data.get("group_size") == -1 else "group" if group > 0 else "tensor"
    strategy = fields.choice("strategy", STRATEGIES, default=default)
    if strategy in ("group", "tensor_group") and group < 1:
        raise CheckpointError("the strategy needs a group size", where=fields.at("group_size"), found=group)
    if strategy == "block" and block is None:
        raise CheckpointError(
            "the strategy needs a block", where=fields.at("block_structure"), expected="[rows, columns]"
        )
    dynamic = fields.data.get("dynamic", False)
    if dynamic not in (True, False, "local", None):
        raise CheckpointError("not a known value", where=fields.at("dynamic"), found=ascii(dynamic)[:60])
    return Args(
        bits=fields.whole("num_bits", default=8, least=1, most=16),
        kind="float" if fields.choice("type", ("int", "float"), default="int") == "float" else "int",
        strategy=strategy,
        group=group if strategy in ("group", "tensor_group") else 0,
        block=block or (0, 0),
        static=dynamic is not True,
        symmetric=fields.flag("symmetric", default=True),
        act_order=fields.data.get("actorder") in (True, "group", "dynamic"),
        byte_scale=fields.data.get("scale_dtype") == "torch.uint8",
    )
