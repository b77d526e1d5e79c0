"""`fp_quant`: MXFP4 or NVFP4 after a Hadamard rotation, for devices of compute capability 10 only.

Tensors: `qweight` U8 [N, K/2], `scales` U8 [N, K/group], `weight_global_scale` and `act_global_scale`
(NVFP4), and the two rotation matrices (vLLM `quantization/fp_quant.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.scheme import QBYTES, BasePlan, Number, Part, Scheme, scalar, scale_shapes
from lowbit_ray.checkpoint.formats.selector import Selector
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher

__all__ = ["METHODS", "read"]

METHODS = ("fp_quant",)


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    group: int = 32
    hadamard: int = 128
    skipped: Selector | None = None

    def scheme(self, weight: Weight) -> Scheme | None:
        if weight.region not in ("linear", "vision") or (self.skipped is not None and weight in self.skipped):
            return None
        square = ((self.hadamard, self.hadamard),)
        needed = self.group == 16
        parts = (
            Part(
                "scales",
                scale_shapes(weight.rows, weight.columns, "group", self.group),
                dtypes=frozenset({"U8"}),
            ),
            Part("weight_global_scale", scalar(), required=needed),
            Part("act_global_scale", scalar(), required=needed),
            Part("forward_hadamard_matrix", square),
            Part("backward_hadamard_matrix", square, required=False),
        )
        return Scheme(Number(4, "float"), QBYTES, parts, Number(4, "float"), self.group)


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of an FP-Quant config; CheckpointError names the field."""
    fields = Fields.of(source)
    dtype = fields.choice("forward_dtype", ("mxfp4", "nvfp4"))
    names = fields.names("modules_to_not_convert")
    return _Plan(
        method="fp_quant",
        group=16 if dtype == "nvfp4" else 32,
        hadamard=fields.whole("hadamard_group_size", default=128),
        skipped=Selector(names, "suffix", matcher, fields.at("modules_to_not_convert")),
    )
