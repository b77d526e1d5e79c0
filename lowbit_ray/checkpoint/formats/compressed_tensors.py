"""`compressed-tensors`: config groups of targets, each with numbers for weights and activations.

A target is a module's name, a regular expression (`re:`) or a class; names go before classes, and `ignore`
before both (compressed-tensors `utils/match.py`, vLLM `compressed_tensors/utils.py`). Tensors by numbers and
format: the module's table in `_scheme`, from the library's compressors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.quantization_args import Args, load_presets, read_args
from lowbit_ray.checkpoint.formats.scheme import (
    DENSE,
    NIBBLES,
    PLAIN_DTYPES,
    WORDS,
    BasePlan,
    KVScheme,
    Layout,
    Number,
    Part,
    Review,
    Scheme,
    Shapes,
    scalar,
    scale_shapes,
)
from lowbit_ray.checkpoint.formats.selector import Selector
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher
from lowbit_ray.errors import CheckpointError

__all__ = ["FORMATS", "METHODS", "read"]

METHODS = ("compressed-tensors",)
FORMATS = (
    "dense",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "pack-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
)
TOP = frozenset(
    {
        "quant_method",
        "format",
        "quantization_status",
        "config_groups",
        "ignore",
        "kv_cache_scheme",
        "global_compression_ratio",
        "transform_config",
        "sparsity_config",
        "version",
        "run_compressed",
    }
)
GROUP = frozenset({"targets", "weights", "input_activations", "output_activations", "format"})
BYTE = frozenset({"U8"})
WORD = frozenset({"I32"})


@dataclass(frozen=True, slots=True)
class _Group:
    """One config group."""

    targets: Selector
    weights: Args | None
    inputs: Args | None
    outputs: Args | None
    format: str
    where: str


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    groups: tuple[_Group, ...] = ()
    ignored: Selector | None = None

    def scheme(self, weight: Weight) -> Scheme | None:
        assert self.ignored is not None
        if weight in self.ignored or weight.module_class in self.ignored.patterns:
            return None
        by_name = next((group for group in self.groups if weight in group.targets), None)
        by_class = next(
            (group for group in self.groups if weight.module_class in group.targets.patterns), None
        )
        group = by_name or by_class
        if group is None or group.weights is None:
            return None
        # the head is a Linear to exporters, but engines quantize it only when a target names it
        optional = by_name is None and weight.region == "head"
        return replace(_scheme(weight, group, group.weights), optional=optional)


def _scheme(weight: Weight, group: _Group, args: Args) -> Scheme:
    n, k = weight.rows, weight.columns
    scales = scale_shapes(n, k, args.strategy, args.group, args.block)
    parts: list[Part]
    layout, parts = _storage(n, k, args, group.format, scales)
    if group.inputs and group.inputs.static:
        parts += _static_input(group.inputs)
    if group.outputs and group.outputs.static:
        parts += [Part("output_scale", scalar()), Part("output_zero_point", scalar(), required=False)]
    return Scheme(
        weights=Number(args.bits, args.kind),
        layout=layout,
        companions=tuple(parts),
        activations=Number(group.inputs.bits, group.inputs.kind) if group.inputs else None,
        group_size=args.group or (args.block[1] or None),
    )


def _storage(n: int, k: int, args: Args, format_: str, scales: Shapes) -> tuple[Layout, list[Part]]:
    """Where the weight is, and what stands beside it, by numbers and format."""
    if format_ == "dense":
        return replace(DENSE, dtypes=PLAIN_DTYPES), [Part("weight_scale", scales, required=False)]
    if args.kind == "float" and args.bits == 4:
        if args.strategy == "tensor_group":
            scale = Part("weight_scale", scales, dtypes=frozenset({"F8_E4M3"}))
            return NIBBLES, [scale, Part("weight_global_scale", scalar())]
        return NIBBLES, [Part("weight_scale", scales, dtypes=BYTE | {"F8_E8M0"})]
    if args.kind == "float":
        dtypes = BYTE | {"F8_E8M0"} if args.byte_scale else None
        return replace(DENSE, dtypes=frozenset({"F8_E4M3"})), [Part("weight_scale", scales, dtypes=dtypes)]
    if format_ == "pack-quantized":
        return WORDS, _packed_companions(n, k, args, scales)
    zero = Part("weight_zero_point", scales, required=not args.symmetric)
    return replace(DENSE, dtypes=frozenset({"I8"})), [Part("weight_scale", scales), zero]


def _packed_companions(n: int, k: int, args: Args, scales: Shapes) -> list[Part]:
    groups = -(-k // args.group) if args.group else 1
    words = sorted({-(-n * args.bits // 32), -(-n // (32 // args.bits))})
    zeros: Shapes = tuple((rows, groups) for rows in words)
    return [
        Part("weight_scale", scales),
        Part("weight_shape", ((2,),)),
        Part("weight_zero_point", zeros, required=not args.symmetric, dtypes=WORD),
        Part("weight_g_idx", ((k,),), required=args.act_order, dtypes=WORD),
    ]


def _static_input(args: Args) -> list[Part]:
    if args.strategy == "tensor_group":
        return [Part("input_global_scale", scalar())]
    return [Part("input_scale", scalar()), Part("input_zero_point", scalar(), required=not args.symmetric)]


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of a compressed-tensors config; CheckpointError names the field."""
    fields = Fields.of(source)
    fields.only(TOP)
    top_format = fields.choice("format", FORMATS, default="dense")
    entries = fields.sub("config_groups")
    groups = [_read_group(name, entries, top_format, matcher) for name in entries.data] if entries else []
    kept = [group for group in groups if not _is_attention(group)]
    return _Plan(
        method="compressed-tensors",
        kv=_kv(fields),
        reviews=tuple(
            Review(group.where, "quantizes attention itself, which vLLM's linear layers skip")
            for group in groups
            if _is_attention(group)
        ),
        traits=_traits(kept),
        groups=tuple(kept),
        ignored=Selector(fields.names("ignore"), "regex", matcher, fields.at("ignore")),
    )


def _read_group(name: str, entries: Fields, top_format: str, matcher: Matcher) -> _Group:
    where = entries.at(name[:100])
    if isinstance(entries.data[name], list):
        return _preset(name, Selector(entries.names(name), "regex", matcher, where), top_format)
    group = Fields(entries.data[name], where)
    group.only(GROUP)
    format_ = group.choice("format", FORMATS, default=top_format)
    weights, inputs, outputs = (
        read_args(group.sub(key)) for key in ("weights", "input_activations", "output_activations")
    )
    targets = Selector(group.names("targets"), "regex", matcher, group.at("targets"))
    return _Group(targets, weights, inputs, outputs, format_, where)


def _preset(name: str, targets: Selector, format_: str) -> _Group:
    where = targets.where
    preset = load_presets().get(name.upper())
    if preset is None:
        raise CheckpointError(
            "no preset of this name",
            where=where,
            found=ascii(name)[:60],
            expected=f"one of {', '.join(load_presets())}",
        )
    args = Fields(preset, where)
    return _Group(
        targets,
        read_args(args.sub("weights")),
        read_args(args.sub("input_activations")),
        None,
        format_,
        where,
    )


def _is_attention(group: _Group) -> bool:
    targets = group.targets.patterns
    return len(targets) == 1 and targets[0].endswith("Attention")


def _kv(fields: Fields) -> KVScheme | None:
    args = read_args(fields.sub("kv_cache_scheme"))
    if args is None:
        return None
    scales = "required" if args.static else "none"
    return KVScheme(args.bits, args.kind, args.strategy, scales, fields.at("kv_cache_scheme"))  # type: ignore[arg-type]


def _traits(groups: list[_Group]) -> Mapping[str, object]:
    return {
        "act_order": any(group.weights.act_order for group in groups if group.weights),
        "formats": sorted({group.format for group in groups}),
        "w4a8_float": any(
            group.weights is not None
            and group.inputs is not None
            and (group.weights.bits, group.weights.kind) == (4, "int")
            and (group.inputs.bits, group.inputs.kind) == (8, "float")
            for group in groups
        ),
        "nvfp4": any(
            group.weights is not None and group.weights.strategy == "tensor_group" for group in groups
        ),
    }
