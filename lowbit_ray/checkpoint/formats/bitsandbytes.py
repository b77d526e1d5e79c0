"""`bitsandbytes`: four-bit tables (nf4, fp4) in one long column of bytes, or int8 rows with their maxima.

Tensors: `weight` U8 [N·K/2, 1] with `weight.absmax` (one a block of 64, itself quantized when nested),
`weight.quant_map`, `weight.quant_state.bitsandbytes__nf4`; or `weight` I8 [N, K] with `SCB` [N]. Served up to
vLLM 0.27; a plugin since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.scheme import DENSE, FLAT, BasePlan, Number, Part, Scheme
from lowbit_ray.checkpoint.formats.selector import Selector
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher
from lowbit_ray.errors import CheckpointError

__all__ = ["METHODS", "read"]

METHODS = ("bitsandbytes",)
BLOCK = 64
"""Weights that share a maximum."""
NESTED = 256
"""Maxima that share a maximum of their own."""


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    four: bool = True
    table: str = "nf4"
    nested: bool = False
    skipped: Selector | None = None

    def scheme(self, weight: Weight) -> Scheme | None:
        if weight.region not in ("linear", "vision", "head"):
            return None
        if self.skipped is not None and weight in self.skipped:
            return None
        # the head stays as it is unless someone asked otherwise, which only the bytes tell
        return replace(self._four(weight) if self.four else _eight(weight), optional=weight.region == "head")

    def _four(self, weight: Weight) -> Scheme:
        blocks = -(-weight.elements // BLOCK)
        state = f"weight.quant_state.bitsandbytes__{self.table}"
        parts = [
            Part("weight.absmax", ((blocks,),)),
            Part("weight.quant_map", ((16,),)),
            Part(state, (), dtypes=frozenset({"U8"})),
            Part("weight.nested_absmax", ((-(-blocks // NESTED),),), required=self.nested),
            Part("weight.nested_quant_map", ((256,),), required=self.nested),
        ]
        return Scheme(Number(4, "float"), FLAT, tuple(parts), None, BLOCK)


def _eight(weight: Weight) -> Scheme:
    parts = (Part("SCB", ((weight.rows,),)), Part("weight_format", ((),), required=False))
    return Scheme(Number(8), replace(DENSE, dtypes=frozenset({"I8"})), parts)


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of a bitsandbytes config; CheckpointError names the field."""
    fields = Fields.of(source)
    four, eight = fields.flag("load_in_4bit"), fields.flag("load_in_8bit")
    if four == eight:
        raise CheckpointError(
            "either four or eight bits must be chosen",
            where=fields.at("load_in_4bit"),
            found=f"{four}, 8 bit {eight}",
        )
    skipped = fields.names("llm_int8_skip_modules")
    return _Plan(
        method="bitsandbytes",
        traits={"bits": 4 if four else 8},
        four=four,
        table=fields.choice("bnb_4bit_quant_type", ("nf4", "fp4"), default="fp4"),
        nested=fields.flag("bnb_4bit_use_double_quant"),
        skipped=Selector(skipped, "substring", matcher, fields.at("llm_int8_skip_modules")),
    )
