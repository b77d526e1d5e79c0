"""`fp8`: E4M3 weights with one scale a tensor, a channel or a block; inputs static or dynamic.

Tensors: `weight` F8_E4M3; `weight_scale`, or `weight_scale_inv` for blocks; `input_scale` when static
(vLLM `quantization/fp8.py`). `fbgemm_fp8` is the same with one scale a channel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.scheme import (
    DENSE,
    BasePlan,
    KVScheme,
    Layout,
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

__all__ = ["E4M3", "METHODS", "fp8_scheme", "read"]

METHODS = ("fp8", "fbgemm_fp8")
E4M3: Layout = replace(DENSE, dtypes=frozenset({"F8_E4M3"}))
KNOWN = frozenset(
    {
        "quant_method",
        "fmt",
        "activation_scheme",
        "weight_block_size",
        "ignored_layers",
        "modules_to_not_convert",
        "scale_fmt",
        "kv_cache_scheme",
        "activation_scale_ub",
        "dequantize",
        "store_dtype",
    }
)


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    static: bool = False
    block: tuple[int, int] | None = None
    ignored: Selector | None = None

    def scheme(self, weight: Weight) -> Scheme | None:
        if weight.region == "embedding" or (self.ignored is not None and weight in self.ignored):
            return None
        # a head of its own is quantized by few exporters, and the method does not say which
        return replace(fp8_scheme(weight, self.block, self.static), optional=weight.region == "head")


def fp8_scheme(weight: Weight, block: tuple[int, int] | None, static: bool) -> Scheme:
    """The scheme of one weight."""
    n, k = weight.rows, weight.columns
    if block:
        scale = Part("weight_scale_inv", scale_shapes(n, k, "block", block=block))
    else:
        scale = Part("weight_scale", scalar() + scale_shapes(n, k, "channel"))
    parts = (scale, Part("input_scale", scalar())) if static else (scale,)
    return Scheme(Number(8, "float"), E4M3, parts, Number(8, "float"), block[1] if block else None)


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of an fp8 config; CheckpointError names the field."""
    fields = Fields.of(source)
    fields.only(KNOWN)
    static = fields.choice("activation_scheme", ("static", "dynamic"), default="dynamic") == "static"
    block = fields.pair("weight_block_size")
    if static and block:
        raise CheckpointError(
            "block-wise weights need dynamic activations",
            where=fields.at("activation_scheme"),
            found="static",
            expected="dynamic",
        )
    ignored = fields.names("ignored_layers", "modules_to_not_convert")
    kv = fields.data.get("kv_cache_scheme")
    return _Plan(
        method=source.method,
        kv=KVScheme(8, "float", scales="required", where=fields.at("kv_cache_scheme")) if kv else None,
        traits={"experts_mxfp4": fields.data.get("store_dtype") == "mxfp4"},
        static=static,
        block=block,
        ignored=Selector(ignored, "exact", matcher, fields.at("ignored_layers")),
    )
