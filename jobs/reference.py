"""Evaluates a reference: `ray job submit -- python -m jobs.reference TASK CHECKPOINT --name NAME`.

A reference is shown on the board without a rank and costs nobody anything: BF16 itself, a plain quantization. The
exit code is 0 when it has a record, 75 when somebody else (a dispatcher) is evaluating it, and 1 for a fault.
"""

from __future__ import annotations

import argparse
import sys

from jobs._measuring import add_log_option, carry_out
from lowbit_ray.reference import run


def main() -> int:
    """Parses the command line, submits, evaluates, prints the record as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.reference",
        description="Evaluate a reference of a task on this Ray cluster and mark its record as one.",
        epilog="Example: ray job submit -- python -m jobs.reference qwen3-8b anchor --name BF16",
    )
    parser.add_argument("task", help="name of the task, such as qwen3-8b")
    parser.add_argument(
        "checkpoint", help="owner/name@commit, s3://bucket/prefix, a path, or `anchor` for the source itself"
    )
    parser.add_argument(
        "--name", required=True, help="the row's name; a later reference of it takes its place"
    )
    parser.add_argument("--method", default="reference", help="how it was made, as the board says it")
    parser.add_argument(
        "--precision", help="the declared precision, W8A8KV16; read from the bytes without it"
    )
    add_log_option(parser)
    given = parser.parse_args()
    return carry_out(
        given.log,
        f"{given.task}: {given.name}",
        lambda watch: run(
            given.task, given.checkpoint, given.name, watch, method=given.method, precision=given.precision
        ),
        lambda record: sys.stdout.write(record.to_json() + "\n"),
    )


if __name__ == "__main__":
    sys.exit(main())
