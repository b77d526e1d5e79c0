"""`inc`: AutoRound and Neural Compressor, which write the layouts of GPTQ, AWQ, FP8 blocks or MX formats.

`data_type` and `packing_format` choose the layout; `extra_config` overrides single layers by name or regular
expression (16 bits: not quantized); `act_bits` are the inputs' (vLLM `quantization/inc/`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.awq import awq_scheme
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.fp8 import E4M3, fp8_scheme
from lowbit_ray.checkpoint.formats.gptq import gptq_scheme
from lowbit_ray.checkpoint.formats.modelopt import mx_scale
from lowbit_ray.checkpoint.formats.scheme import NIBBLES, BasePlan, Number, Scheme
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher

__all__ = ["METHODS", "read"]

METHODS = ("inc",)
SPECIAL = frozenset("*+?^$()[]{}|\\")


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one name or pattern of `extra_config` says."""

    pattern: str
    bits: int
    group: int


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    bits: int = 4
    group: int = 128
    block: tuple[int, int] | None = None
    data_type: str = "int"
    awq: bool = False
    activations: Number | None = None
    blocks: tuple[str, ...] = ()
    """Prefixes of modules that are quantized; none means all linear layers but the head."""
    layers: tuple[_Layer, ...] = ()
    matcher: Matcher | None = None
    where: str = ""

    def scheme(self, weight: Weight) -> Scheme | None:
        layer = next((layer for layer in self.layers if self._names(layer, weight)), None)
        if layer is None and not self._covers(weight):
            return None
        bits, group = (layer.bits, layer.group) if layer else (self.bits, self.group)
        if bits >= 16 or weight.region == "embedding":
            return None
        if self.block:
            return fp8_scheme(weight, self.block, static=False)
        if self.data_type.startswith("mx_fp"):
            number, layout = Number(bits, "float"), E4M3 if bits == 8 else NIBBLES
            return Scheme(number, layout, (mx_scale(weight),), self.activations, 32)
        scheme = awq_scheme(weight, bits, group, True, True) if self.awq else gptq_scheme(weight, bits, group)
        return replace(scheme, activations=self.activations)

    def _covers(self, weight: Weight) -> bool:
        if self.blocks:
            return any(name.startswith(block) for block in self.blocks for name in weight.names)
        return weight.region == "linear"

    def _names(self, layer: _Layer, weight: Weight) -> bool:
        if any(f".{name}".endswith(f".{layer.pattern}") for name in weight.names):
            return True
        if SPECIAL.isdisjoint(layer.pattern) or self.matcher is None:
            return False
        # the engine searches anywhere in the name
        return any(
            self.matcher.regex(f"(?s:.*?)(?:{layer.pattern})", name, self.where) for name in weight.names
        )


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of an INC or AutoRound config; CheckpointError names the field."""
    fields = Fields.of(source)
    bits = fields.whole("bits", least=2, most=16)
    block = fields.pair("group_size") if isinstance(fields.data.get("group_size"), list) else None
    group = fields.group("group_size") if block is None else -1
    extra = fields.sub("extra_config")
    layers = []
    for pattern in extra.data if extra else ():
        entry = Fields(extra.data[pattern] if extra else None, fields.at("extra_config", pattern[:100]))
        layers.append(_Layer(pattern, entry.whole("bits", default=bits, most=32), _group_of(entry, group)))
    packing = str(fields.data.get("packing_format", "")) + str(fields.data.get("backend", ""))
    data_type = str(fields.data.get("data_type") or "int").lower()
    return _Plan(
        method=source.method,
        traits={"bits": bits, "data_type": data_type},
        bits=bits,
        group=group,
        block=block,
        data_type=data_type,
        awq="awq" in packing,
        activations=_activations(fields),
        blocks=_blocks(fields),
        layers=tuple(layers),
        matcher=matcher,
        where=fields.at("extra_config"),
    )


def _group_of(entry: Fields, default: int) -> int:
    value = entry.data.get("group_size")
    return default if value is None or isinstance(value, list) else entry.group("group_size")


def _activations(fields: Fields) -> Number | None:
    bits = fields.whole("act_bits", default=16, most=32)
    kind = str(fields.data.get("act_data_type") or "int")
    return None if bits >= 16 else Number(bits, "float" if "fp" in kind else "int")


def _blocks(fields: Fields) -> tuple[str, ...]:
    """Module prefixes, written as a list or as one text with commas."""
    key = "block_name_to_quantize" if fields.data.get("block_name_to_quantize") else "to_quant_block_names"
    value = fields.data.get(key)
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return fields.names(key)
