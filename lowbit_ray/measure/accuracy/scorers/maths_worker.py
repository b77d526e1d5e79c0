"""The process that asks math-verify: `python -m lowbit_ray.measure.accuracy.scorers.maths_worker`.

Standard input: a JSON list of [answer, text]. Standard output: `1` or `0` a line, as each is decided. A model
may write `9**9**9**9`, and sympy may try; so each pair gets some CPU seconds, after which the kernel ends the
process (the caller starts another one for the rest), and the address space is limited.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time

__all__ = ["main"]

PAIR_CPU_S = 4
ADDRESS_SPACE_BYTES = 2 << 30


def main() -> None:
    """Decides pair after pair."""
    logging.disable(logging.CRITICAL)  # math-verify logs the expressions that it cannot read
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for answer, text in json.loads(sys.stdin.buffer.read()):
        used = int(time.process_time()) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used + PAIR_CPU_S, resource.RLIM_INFINITY))
        print(int(_equal(answer, text)), flush=True)  # noqa: T201 - the answer to the parent


def _equal(answer: str, text: str) -> bool:
    from math_verify import parse, verify

    try:
        # its own time limits use SIGALRM and cannot interrupt big integers; the kernel's can
        wanted = parse(f"${answer}$", parsing_timeout=None) or parse(answer, parsing_timeout=None)
        given = parse(text, parsing_timeout=None)
        return bool(wanted and given and verify(wanted, given, timeout_seconds=None))
    except Exception:  # sympy raises many kinds on odd input, and none of them is a right answer
        return False


if __name__ == "__main__":
    main()
