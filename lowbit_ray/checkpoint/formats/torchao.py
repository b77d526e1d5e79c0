"""`torchao`: tensor subclasses, flattened into names and shapes that only torchao can read.

The config names the scheme (`quant_type.default._type`), and from it come the bits; that the bytes hold them
cannot be shown, so every such checkpoint needs a person's look. torchao (0.18) flattens a weight into
`_weight_qdata`, `_weight_scale` and `_weight_zero_point`, some with the last two in one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.scheme import BasePlan, Layout, Number, Part, Review, Scheme
from lowbit_ray.checkpoint.formats.selector import Selector
from lowbit_ray.checkpoint.header import Tensor
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher

__all__ = ["METHODS", "read"]

METHODS = ("torchao",)
TYPE = re.compile(
    r"(?:(Int|Float)(\d+)DynamicActivation)?(Int|Float|UInt|Intx|Fpx)(\d*)Weight(?:Only)?Config"
)


@dataclass(frozen=True, slots=True)
class _Flattened(Layout):
    """A tensor of whatever shape a kernel wants: the bits follow from its size alone."""

    def bits(self, tensor: Tensor, weight: Weight, expected: int) -> int | None:
        bits, rest = divmod(8 * tensor.nbytes, weight.elements)
        return bits if rest == 0 and 1 <= bits <= 8 and tensor.dtype in self.dtypes else None


QDATA = _Flattened(
    "_weight_qdata", frozenset({"I8", "U8", "I32", "F8_E4M3"}), lambda n, k, _: ((n, k),), packed=False
)


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    weights: Number = field(default_factory=lambda: Number(8))
    activations: Number | None = None
    skipped: Selector | None = None

    def scheme(self, weight: Weight) -> Scheme | None:
        if weight.region == "embedding" or (self.skipped is not None and weight in self.skipped):
            return None
        # int4 keeps scale and zero point in one tensor; which one a type has, only the type knows
        names = ("_weight_scale", "_weight_zero_point", "_weight_scale_and_zero")
        parts = tuple(Part(name, (), required=False) for name in names)
        return Scheme(self.weights, QDATA, parts, self.activations, optional=True)


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of a torchao config; CheckpointError names the field."""
    fields = Fields.of(source)
    kind = fields.sub("quant_type")
    default = kind.sub("default") if kind else None
    name = str(default.data.get("_type", "")) if default else ""
    match = TYPE.fullmatch(name)
    weights, activations = Number(8), None
    if match is not None:
        weights = Number(int(match[4] or 8), "float" if match[3] in ("Float", "Fpx") else "int")
        activations = Number(int(match[2]), "float" if match[1] == "Float" else "int") if match[1] else None
    where = default.at("_type") if default else fields.at("quant_type")
    skipped = fields.names("modules_to_not_convert")
    return _Plan(
        method="torchao",
        reviews=(
            Review(where, f"the bytes of {name[:60] or 'an unnamed type'} can be read by torchao only"),
        ),
        weights=weights,
        activations=activations,
        skipped=Selector(skipped, "suffix", matcher, fields.at("modules_to_not_convert")),
    )
