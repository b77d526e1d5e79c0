"""`gptq`: integers in words along the input dimension, one scale and zero point a group.

Tensors: `qweight` I32 [K/(32/bits), N], `qzeros` I32 [K/group, N/(32/bits)], `scales` [K/group, N], `g_idx`
I32 [K] (vLLM `quantization/auto_gptq.py`). `dynamic` overrides bits and group by regular expression
(`+:` applies, `-:` leaves the module alone); a module that is not listed and stored plainly stays plain.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats.fields import Fields
from lowbit_ray.checkpoint.formats.scheme import GPTQ, BasePlan, Number, Part, Scheme, Shapes
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.patterns import Matcher

__all__ = ["METHODS", "gptq_scheme", "read"]

METHODS = ("gptq", "auto_gptq", "gptq_marlin", "moe_wna16")
FLOATS = frozenset({"BF16", "F16", "F32"})


@dataclass(frozen=True, slots=True)
class _Rule:
    """One entry of `dynamic`."""

    pattern: str
    skip: bool
    bits: int
    group: int


@dataclass(frozen=True, slots=True)
class _Plan(BasePlan):
    bits: int = 4
    group: int = -1
    head: bool = False
    rules: tuple[_Rule, ...] = ()
    matcher: Matcher | None = None
    where: str = ""

    def scheme(self, weight: Weight) -> Scheme | None:
        if weight.region not in ("linear", "vision") and not (weight.region == "head" and self.head):
            return None
        bits, group = self.bits, self.group
        for rule in self.rules:
            assert self.matcher is not None
            if any(self.matcher.regex(rule.pattern, name, self.where) for name in weight.names):
                if rule.skip:
                    return None
                bits, group = rule.bits, rule.group
                break
        return gptq_scheme(weight, bits, group)


def gptq_scheme(weight: Weight, bits: int, group: int) -> Scheme:
    """The scheme of one weight; `group` −1 is one group for the whole input dimension."""
    n, k = weight.rows, weight.columns
    size = k if group == -1 else group
    groups = -(-k // size)
    zeros: Shapes = tuple((groups, words) for words in sorted({-(-n * bits // 32), -(-n // (32 // bits))}))
    parts = (
        Part("scales", ((groups, n),), dtypes=FLOATS),
        Part("qzeros", zeros, dtypes=frozenset({"I32"})),
        Part("g_idx", ((k,), (0,)), required=False, dtypes=frozenset({"I32"})),
    )
    return Scheme(Number(bits), GPTQ, parts, None, None if group == -1 else group, optional=True)


def read(source: QuantizationSource, matcher: Matcher) -> _Plan:
    """The plan of a GPTQ config; CheckpointError names the field."""
    fields = Fields.of(source)
    bits = fields.whole("bits", least=2, most=8)
    group = fields.group("group_size")
    symmetric = fields.flag("sym", default=True)
    act_order = fields.flag("desc_act") and group != -1
    rules = []
    dynamic = fields.sub("dynamic")
    for pattern, override in (dynamic.data if dynamic else {}).items():
        entry = Fields(override, dynamic.at(pattern[:100]) if dynamic else "")
        rules.append(
            _Rule(
                pattern.removeprefix("+:").removeprefix("-:"),
                pattern.startswith("-:"),
                entry.whole("bits", default=bits, least=2, most=8),
                entry.group("group_size", default=group),
            )
        )
        act_order |= entry.flag("desc_act", default=fields.flag("desc_act")) and rules[-1].group != -1
    return _Plan(
        method=source.method,
        traits={
            "bits": (bits, *(rule.bits for rule in rules if not rule.skip)),
            "symmetric": symmetric,
            "act_order": act_order,
            "checkpoint_format": fields.data.get("checkpoint_format"),
        },
        bits=bits,
        group=group,
        head=fields.flag("lm_head"),
        rules=tuple(rules),
        matcher=matcher,
        where=fields.at("dynamic"),
    )
