"""`quark`: AMD Quark, by tensor: a layer's config, else its class's, else the global one.

Each of `weight`, `input_tensors` and `output_tensors` is an object with `dtype`, `qscheme`, `group_size`,
`scale_format`; a list of two means two levels of scales. Tensors: `weight`, `weight_scale`, `weight_scale_2`,
`weight_zero_point`, `input_scale`, `input_scale_2` (vLLM `quantization/quark/`). The KV cache's numbers are
the `output_tensors` of the layers in `export.kv_cache_group`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.awq import awq_scheme
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.fp8 import E4M3
from lowbit_ray.checkpoint.formats.modelopt import mx_scale
from lowbit_ray.checkpoint.formats.scheme import (
    AWQ,
    BYTES,
    DENSE,
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

__all__ = ["METHODS", "read"]

METHODS = ("quark",)
DTYPES = {
    "fp8_e4m3": Number(8, "float"),
    "fp8_e4m3fn": Number(8, "float"),
    "int8": Number(8),
    "uint8": Number(8),
    "int4": Number(4),
    "uint4": Number(4),
    "fp4": Number(4, "float"),
    "fp6_e2m3": Number(6, "float"),
    "fp6_e3m2": Number(6, "float"),
}
STRATEGIES = {"per_tensor": "tensor", "per_channel": "channel", "per_group": "group", "per_block": "block"}


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One tensor's numbers."""

    number: Number
    strategy: str
    group: int
    block: tuple[int, int]
    static: bool
    symmetric: bool
    levels: int
    """2 when the scales are scaled themselves (NVFP4)."""
    mx: bool
    """Whether scales are powers of two in bytes."""


@dataclass(frozen=True, slots=True)
class _Layer:
    weight: _Tensor | None
    inputs: _Tensor | None
    outputs: _Tensor | None


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    default: _Layer | None = None
    layers: tuple[tuple[Selector, _Layer], ...] = ()
    classes: tuple[tuple[str, _Layer], ...] = ()
    excluded: tuple[Selector, ...] = ()

    def scheme(self, weight: Weight) -> Scheme | None:
        if any(weight in selector for selector in self.excluded):
            return None
        named = next((layer for selector, layer in self.layers if weight in selector), None)
        by_class = next((layer for name, layer in self.classes if name.endswith(weight.module_class)), None)
        layer = named or by_class or (self.default if weight.region != "embedding" else None)
        if layer is None or layer.weight is None:
            return None
        return replace(
            _scheme(weight, layer.weight, layer.inputs), optional=weight.region == "head" and named is None
        )


def _scheme(weight: Weight, tensor: _Tensor, inputs: _Tensor | None) -> Scheme:
    n, k = weight.rows, weight.columns
    number, group = tensor.number, tensor.group or None
    scale = Part("weight_scale", scale_shapes(n, k, tensor.strategy, tensor.group or k, tensor.block))
    parts: tuple[Part, ...] = (scale,)
    if number.kind == "float" and number.bits < 8:
        layout = BYTES
        parts = (
            (scale, Part("weight_scale_2", scalar()))
            if tensor.levels == 2
            else (mx_scale(weight, tensor.group or 32),)
        )
    elif number.kind == "float":
        layout = E4M3
        parts = (mx_scale(weight, tensor.group or 32),) if tensor.mx else parts
    elif number.bits == 8:
        layout = replace(DENSE, dtypes=frozenset({"I8"}))
        parts += (Part("weight_zero_point", scale.shapes, required=not tensor.symmetric),)
    else:
        layout = replace(AWQ, suffix="weight")
        scales, zeros = awq_scheme(
            weight, number.bits, tensor.group or -1, not tensor.symmetric, False
        ).companions
        parts = (replace(scales, suffix="weight_scale"), replace(zeros, suffix="weight_zero_point"))
    if inputs is not None and inputs.static:
        parts += (Part("input_scale_2" if inputs.levels == 2 else "input_scale", scalar()),)
    return Scheme(number, layout, parts, inputs.number if inputs else None, group)


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of a Quark config; CheckpointError names the field."""
    fields = Fields.of(source)
    by_layer, by_class = fields.sub("layer_quant_config"), fields.sub("layer_type_quant_config")
    default = fields.sub("global_quant_config")
    export = fields.sub("export")
    group = export.names("kv_cache_group") if export else ()
    layers = []
    kv: KVScheme | None = None
    for name in by_layer.data if by_layer else ():
        entry = Fields(by_layer.data[name] if by_layer else None, fields.at("layer_quant_config", name[:100]))
        layer = _layer(entry)
        layers.append((Selector((name,), "wildcard", matcher, entry.where), layer))
        if name in group and layer.outputs is not None:
            number = layer.outputs.number
            kv = KVScheme(
                number.bits, number.kind, layer.outputs.strategy, "required", entry.at("output_tensors")
            )
    classes = [
        (name, _layer(Fields(by_class.data[name], fields.at("layer_type_quant_config", name[:100]))))
        for name in (by_class.data if by_class else ())
        if by_class is not None
    ]
    return _Plan(
        method="quark",
        kv=kv,
        default=_layer(default) if default else None,
        layers=tuple(layers),
        classes=tuple(classes),
        excluded=_excluded(fields, matcher),
    )


def _excluded(fields: Fields, matcher: Matcher) -> tuple[Selector, ...]:
    """Names, `re:` patterns and wildcards stand in one list."""
    names, where = fields.names("exclude"), fields.at("exclude")
    regexes = tuple(name for name in names if name.startswith("re:"))
    others = tuple(name for name in names if not name.startswith("re:"))
    return Selector(regexes, "regex", matcher, where), Selector(others, "wildcard", matcher, where)


def _layer(fields: Fields) -> _Layer:
    return _Layer(*(_tensor(fields, key) for key in ("weight", "input_tensors", "output_tensors")))


def _tensor(layer: Fields, key: str) -> _Tensor | None:
    value = layer.data.get(key)
    levels = len(value) if isinstance(value, list) else 1
    if not value:
        return None
    fields = Fields(value[0] if isinstance(value, list) else value, layer.at(key))
    strategy: str = STRATEGIES[fields.choice("qscheme", tuple(STRATEGIES), default="per_tensor")]
    block = fields.pair("block_size") if isinstance(fields.data.get("block_size"), list) else None
    group = fields.data.get("group_size")
    number = DTYPES[fields.choice("dtype", tuple(DTYPES))]
    kind: Literal["int", "float"] = number.kind
    return _Tensor(
        number=Number(number.bits, kind),
        strategy=strategy,
        group=fields.group("group_size") if group is not None and strategy == "group" else 0,
        block=block or (128, 128),
        static=fields.data.get("is_dynamic") is not True or levels == 2,
        symmetric=fields.data.get("symmetric") is not False,
        levels=levels,
        mx=fields.data.get("scale_format") == "e8m0",
    )
