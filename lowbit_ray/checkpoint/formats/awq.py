"""`awq`: four-bit integers in words along the output dimension, one scale and zero point a group.

Tensors: `qweight` I32 [K, N/8], `qzeros` I32 [K/group, N/8], `scales` [K/group, N] (vLLM
`quantization/auto_awq.py`). `modules_to_not_convert` matches as a part of the name.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.scheme import AWQ, PLAIN_DTYPES, BasePlan, Number, Part, Scheme
from lowbit_ray.checkpoint.formats.selector import Selector
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher

__all__ = ["METHODS", "awq_scheme", "read"]

METHODS = ("awq", "auto_awq", "awq_marlin")


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    bits: int = 4
    group: int = 128
    zero_point: bool = True
    head: bool = False
    ignored: Selector | None = None

    def scheme(self, weight: Weight) -> Scheme | None:
        if weight.region not in ("linear", "vision") and not (weight.region == "head" and self.head):
            return None
        if self.ignored is not None and weight in self.ignored:
            return None
        return awq_scheme(weight, self.bits, self.group, self.zero_point, not self.ignored)


def awq_scheme(weight: Weight, bits: int, group: int, zero_point: bool, optional: bool) -> Scheme:
    """The scheme of one weight; `group` −1 is one group for the whole input dimension."""
    n, k = weight.rows, weight.columns
    groups = -(-k // (k if group == -1 else group))
    words = -(-n * bits // 32)
    parts = (
        Part("scales", ((groups, n),), dtypes=PLAIN_DTYPES),
        Part("qzeros", ((groups, words),), required=zero_point, dtypes=frozenset({"I32"})),
    )
    return Scheme(Number(bits), AWQ, parts, None, None if group == -1 else group, optional)


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of an AWQ config; CheckpointError names the field."""
    fields = Fields.of(source)
    bits = fields.whole("w_bit", "bits", least=2, most=8)
    names = fields.names("modules_to_not_convert")
    return _Plan(
        method=source.method,
        traits={"bits": bits, "version": fields.data.get("version")},
        bits=bits,
        group=fields.group("q_group_size", "group_size"),
        zero_point=fields.flag("zero_point", default=True),
        head=fields.flag("lm_head"),
        ignored=Selector(names, "substring", matcher, fields.at("modules_to_not_convert")),
    )
