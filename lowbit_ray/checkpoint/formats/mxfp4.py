"""`mxfp4`: experts in blocks of 32 four-bit floats with a power-of-two scale each; all else stays BF16.

Tensors, of gpt-oss: `gate_up_proj_blocks` U8 [experts, rows, K/32, 16], `gate_up_proj_scales` U8 [experts,
rows, K/32], the same for `down_proj` (vLLM `quantization/mxfp4.py`). Activations are BF16, or FP8 on some
kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.scheme import BLOCKS, BasePlan, Number, Part, Scheme
from lowbit_ray.checkpoint.formats.selector import Selector
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher

__all__ = ["METHODS", "read"]

METHODS = ("mxfp4", "gpt_oss_mxfp4")
GROUP = 32


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    ignored: Selector | None = None

    def scheme(self, weight: Weight) -> Scheme | None:
        if not weight.lead or (self.ignored is not None and weight in self.ignored):
            return None
        n, k = weight.rows, weight.columns
        shapes = ((n, k // GROUP), (k, n // GROUP))
        return Scheme(
            Number(4, "float"), BLOCKS, (Part("_scales", shapes, dtypes=frozenset({"U8"})),), None, GROUP
        )


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of an MXFP4 config; CheckpointError names the field."""
    fields = Fields.of(source)
    names = fields.names("modules_to_not_convert")
    # its list is of wildcards over layers ("model.layers.*.self_attn")
    return _Plan(
        source.method, ignored=Selector(names, "wildcard", matcher, fields.at("modules_to_not_convert"))
    )
