"""`fp8`: E4M3 weights with one scale a tensor, a channel or a block; inputs static or dynamic.

Tensors: `weight` F8_E4M3; `weight_scale`, or `weight_scale_inv` for blocks; `input_scale` when static
(vLLM `quantization/fp8.py`). `fbgemm_fp8` is the same with one scale a channel.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher
from lowbit_ray.errors import CheckpointError

__all__ = ["E4M3", "METHODS", "read"]

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
    }
)


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    static: bool = False
    block: tuple[int, int] | None = None
    ignored: frozenset[str] = frozenset()

    def scheme(self, weight: Weight) -> Scheme | None:
        if weight.region not in ("linear", "head", "vision") or self._ignores(weight):
            return None
        n, k = weight.rows, weight.columns
        if self.block:
            name, shapes = "weight_scale_inv", scale_shapes(n, k, "block", block=self.block)
        else:
            name, shapes = "weight_scale", scalar() + scale_shapes(n, k, "channel")
        parts = [Part(name, shapes)]
        if self.static:
            parts.append(Part("input_scale", scalar()))
        group = self.block[1] if self.block else None
        return Scheme(Number(8, "float"), E4M3, tuple(parts), Number(8, "float"), group)

    def _ignores(self, weight: Weight) -> bool:
        module = weight.module
        return any(name in self.ignored for name in (module, module.rpartition(".")[2])) or any(
            module.startswith(f"{name}.") for name in self.ignored
        )


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
    traits: Mapping[str, object] = {"scale_fmt": fields.data.get("scale_fmt"), "block": block}
    kv = fields.data.get("kv_cache_scheme")
    return _Plan(
        method=source.method,
        kv=KVScheme(8, "float", scales="required", where=fields.at("kv_cache_scheme")) if kv else None,
        traits=traits,
        static=static,
        block=block,
        ignored=frozenset(fields.names("ignored_layers", "modules_to_not_convert")),
    )
