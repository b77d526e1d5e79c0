"""Evaluates one submission of the ledger: `ray job submit -- python -m jobs.evaluate ID`.

The exit code is 0 when the submission has a record (a verdict, good or bad), 75 when somebody else is evaluating it
or there was no pod, and 1 for a fault of our own: submit the job again, it goes on from the finished steps.
"""

from __future__ import annotations

import argparse
import sys

from jobs._measuring import add_log_option, carry_out
from lowbit_ray.evaluate import run


def main() -> int:
    """Parses the command line, evaluates, prints the record as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.evaluate",
        description="Evaluate one submission of the ledger (LOWBIT_LEDGER) on this Ray cluster.",
        epilog="Example: ray job submit -- python -m jobs.evaluate a553eefea2d24359",
    )
    parser.add_argument("submission", help="id of the submission, 16 hex digits")
    add_log_option(parser)
    arguments = parser.parse_args()
    return carry_out(
        arguments.log,
        arguments.submission,
        lambda watch: run(arguments.submission, watch),
        lambda record: sys.stdout.write(record.to_json() + "\n"),
    )


if __name__ == "__main__":
    sys.exit(main())
