"""What an engine says it computes with: the kernels behind the executed precision.

A format that the device has no arithmetic for is served by a weight-only kernel: NVFP4 on Hopper runs as
W4A16. The contract reads the precision from tensors; these lines say what ran.
"""

from __future__ import annotations

import re

from lowbit_ray.engines.log import read_lines

__all__ = ["chosen_kernels"]

CHOICES = re.compile(
    r"^(?:Selected \w+ for \w+"
    r"|Using \w+ for \w+(?:LinearMethod|Int|Fp8|WNA16)"
    r"|Using \w+ for (?:(?:NVFP4|MXFP[468]) GEMM|mixed-precision linear)"
    r"|Using [A-Z_0-9]+ attention backend"
    r"|Using FlashAttention version \d+"
    r"|Using \S+ (?:Fp8|NvFp4|MxFp4|Unquantized) MoE backend)"
)
FALLBACK = re.compile(
    r"does not have native support for FP\d+ computation|lacks native FP4 compute|weight-only \(A16\) kernel"
)
LIMIT = 40


def chosen_kernels(log: str) -> tuple[str, ...]:
    """The choices, each once, in the order of the log; a fallback to weight-only kernels is one of them."""
    found: dict[str, None] = {}
    for line in read_lines(log):
        if match := CHOICES.match(line.message):
            found[match[0]] = None
        elif FALLBACK.search(line.message):
            found["weight-only fallback: the device has no arithmetic for this format"] = None
    return tuple(found)[:LIMIT]
