"""`modelopt`: NVIDIA Model Optimizer, by algorithm: FP8, NVFP4, MXFP8, or one for each layer.

The config stands in config.json (`quant_algo`, `ignore`, `kv_cache_scheme`) or in hf_quant_config.json (under
`quantization`, with `exclude_modules` and `kv_cache_quant_algo`). Tensors: `weight`, `weight_scale`,
`weight_scale_2` (NVFP4's second level), `input_scale` (vLLM `quantization/modelopt.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.fp8 import E4M3
from lowbit_ray.checkpoint.formats.scheme import (
    BYTES,
    BasePlan,
    KVScheme,
    Number,
    Part,
    Scheme,
    scalar,
    scale_shapes,
)
from lowbit_ray.checkpoint.formats.selector import Selector
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher
from lowbit_ray.errors import CheckpointError

__all__ = ["METHODS", "mx_scale", "read"]

METHODS = ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed", "mxfp8")
ALGORITHMS = (
    "fp8",
    "fp8_per_channel_per_token",
    "fp8_pb_wo",
    "fp8_block_scales",
    "nvfp4",
    "w4a16_nvfp4",
    "mxfp8",
)
PAYLOADS = {"iq2_xs": (2, 256, 74), "iq2_xxs": (2, 256, 66), "q8_0": (8, 32, 34)}
"""Block codecs of mixed checkpoints from vLLM 0.33 on: nominal bits, weights a block, bytes a block with scales."""
BLOCK = 128
KV = {"fp8": KVScheme(8, "float", scales="optional"), "nvfp4": KVScheme(4, "float", scales="optional")}


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    algorithm: str = "fp8"
    group: int = 16
    weight_only: bool = False
    """Whether every config group leaves the inputs alone."""
    excluded: Selector | None = None
    layers: Mapping[str, tuple[str, int]] | None = None
    """Mixed precision: module → algorithm and group size; a module that is not there is not quantized."""

    def scheme(self, weight: Weight) -> Scheme | None:
        if self.excluded is not None and weight in self.excluded:
            return None
        if self.layers is not None:
            entry = next((self.layers[name] for name in weight.names if name in self.layers), None)
            if entry is None:
                return None
            if entry[0] in PAYLOADS:
                return _payload(entry[0])
            return _scheme(weight, entry[0], entry[1], weight_only=False)
        if weight.region == "embedding":
            return None
        scheme = _scheme(weight, self.algorithm, self.group, self.weight_only)
        return replace(scheme, optional=weight.region == "head")


def mx_scale(weight: Weight, group: int = 32) -> Part:
    """The companion of an MX format: one power of two, in a byte, a group."""
    return Part(
        "weight_scale",
        scale_shapes(weight.rows, weight.columns, "group", group),
        dtypes=frozenset({"U8", "F8_E8M0"}),
    )


def _payload(codec: str) -> Scheme:
    """Blocks that hold their own scales: `weight` U8 [N, K/block, bytes]."""
    bits, block, size = PAYLOADS[codec]
    layout = replace(BYTES, shapes=lambda n, k, _: ((n, k // block, size),))
    return Scheme(Number(bits), layout, (), None, block)


def _scheme(weight: Weight, algorithm: str, group: int, weight_only: bool) -> Scheme:
    n, k = weight.rows, weight.columns
    eight = Number(8, "float")
    if algorithm == "fp8":
        return Scheme(eight, E4M3, (Part("weight_scale", scalar()), Part("input_scale", scalar())), eight)
    if algorithm == "fp8_per_channel_per_token":
        return Scheme(eight, E4M3, (Part("weight_scale", scale_shapes(n, k, "channel")),), eight)
    if algorithm in ("fp8_pb_wo", "fp8_block_scales"):
        rows, columns = scale_shapes(n, k, "block", block=(BLOCK, BLOCK))[0]
        shapes = ((rows, columns), (rows, 1, columns, 1))
        return Scheme(eight, E4M3, (Part("weight_scale", shapes),), eight, BLOCK)
    if algorithm == "mxfp8":
        return Scheme(eight, E4M3, (mx_scale(weight),), eight, 32)
    scale = Part("weight_scale", scale_shapes(n, k, "group", group), dtypes=frozenset({"F8_E4M3"}))
    four = Number(4, "float")
    only = weight_only or algorithm == "w4a16_nvfp4"
    parts = (scale, Part("weight_scale_2", scalar()), Part("input_scale", scalar(), required=not only))
    return Scheme(four, BYTES, parts, None if only else four, group)


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of a ModelOpt config, nested or flat; CheckpointError names the field."""
    fields = Fields.of(source)
    key = next(
        (key for key in ("exclude_modules", "ignore", "ignored_layers") if fields.data.get(key)), "ignore"
    )
    excluded = Selector(fields.names(key), "wildcard", matcher, fields.at(key))
    kv = _kv(fields)
    layers = _layers(fields)
    default = "mxfp8" if source.method in ("mxfp8", "modelopt_mxfp8") else None
    algorithm = fields.choice("quant_algo", (*ALGORITHMS, "mixed_precision"), default=default)
    if algorithm == "mixed_precision" and layers is None:
        raise CheckpointError("mixed precision without its layers", where=fields.at("quantized_layers"))
    payloads = sorted({name for name, _ in (layers or {}).values() if name in PAYLOADS})
    weight_only = _weight_only(fields)
    return _Plan(
        method=source.method,
        kv=kv,
        traits={
            "mixed_payload": bool(payloads),
            "nvfp4": "nvfp4" in (algorithm, *(name for name, _ in (layers or {}).values()))
            and not weight_only,
        },
        algorithm=algorithm,
        group=fields.group("group_size", default=16),
        weight_only=weight_only,
        excluded=excluded,
        layers=layers if algorithm == "mixed_precision" else None,
    )


def _layers(fields: Fields) -> dict[str, tuple[str, int]] | None:
    layers = fields.sub("quantized_layers")
    if layers is None:
        return None
    found = {}
    for name in layers.data:
        layer = Fields(layers.data[name], layers.at(name[:100]))
        algorithm = layer.choice("quant_algo", (*ALGORITHMS, *PAYLOADS))
        found[name] = (algorithm, layer.group("group_size", default=16))
    return found


def _kv(fields: Fields) -> KVScheme | None:
    """`kv_cache_scheme` as an object, or `kv_cache_quant_algo` as a word."""
    scheme = fields.data.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        args = Fields(scheme, fields.at("kv_cache_scheme"))
        bits = args.whole("num_bits", default=8, least=1, most=16)
        args.choice("type", ("float",), default="float")
        where, name = args.where, {8: "fp8", 4: "nvfp4"}.get(bits)
        if name is None:
            raise CheckpointError(
                "not a served KV width", where=args.at("num_bits"), found=bits, expected="8 or 4"
            )
    else:
        where = fields.at("kv_cache_quant_algo")
        name = fields.choice("kv_cache_quant_algo", ("none", *KV), default="none")
    return None if name == "none" else replace(KV[name], where=where)


def _weight_only(fields: Fields) -> bool:
    groups = fields.sub("config_groups")
    if groups is None or not groups.data:
        return False
    return all(
        isinstance(group, dict) and not group.get("input_activations") for group in groups.data.values()
    )
