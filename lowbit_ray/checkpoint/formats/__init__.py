"""One reader a quantization format. Adding a format is adding a file and its line in READERS.

A reader is a function from a config (already found and parsed) to a `Plan`; it refuses what it does not know
with CheckpointError, as a field that nobody reads could change what is executed.
"""

from __future__ import annotations

from collections.abc import Callable

from lowbit_ray.checkpoint.config import QuantizationSource
from lowbit_ray.checkpoint.formats import (
    awq,
    bitsandbytes,
    compressed_tensors,
    fp8,
    fp_quant,
    gptq,
    inc,
    modelopt,
    mxfp4,
    quark,
    torchao,
)
from lowbit_ray.checkpoint.formats.scheme import Plan
from lowbit_ray.checkpoint.patterns import Matcher
from lowbit_ray.errors import CheckpointError

__all__ = ["READERS", "plan_for"]

Reader = Callable[[QuantizationSource, Matcher], Plan]

_FORMATS = (awq, bitsandbytes, compressed_tensors, fp8, fp_quant, gptq, inc, modelopt, mxfp4, quark, torchao)

READERS: dict[str, Reader] = {name: module.read for module in _FORMATS for name in module.METHODS}
"""vLLM's method name → its reader."""


def plan_for(source: QuantizationSource, matcher: Matcher) -> Plan:
    """The plan of a quantization config; CheckpointError names the field and what is known."""
    reader = READERS.get(source.method)
    if reader is None:
        raise CheckpointError(
            "no reader for this quantization method"
            if source.method
            else "the quantization method is not named",
            where=f"{source.where}.quant_method" if source.field else f"{source.file}: quant_method",
            found=ascii(source.method)[:60] if source.method else None,
            expected=f"one of {', '.join(sorted(READERS))}",
        )
    return reader(source, matcher)
