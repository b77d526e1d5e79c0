"""Evaluates one submission of the ledger: `ray job submit -- python -m jobs.evaluate ID`.

The exit code is 0 when the submission has a record (a verdict, good or bad), 75 when somebody else is evaluating it
or there was no pod, and 1 for a fault of our own: submit the job again, it goes on from the finished steps.
"""

from __future__ import annotations

import argparse
import signal
import sys

from lowbit_ray.errors import LowbitError, NoPodError
from lowbit_ray.evaluate import BUSY, run
from lowbit_ray.lease import LeaseHeld
from lowbit_ray.report.log import told
from lowbit_ray.settings import settings


def main() -> int:
    """Parses the command line, evaluates, prints the record as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.evaluate",
        description="Evaluate one submission of the ledger (LOWBIT_LEDGER) on this Ray cluster.",
        epilog="Example: ray job submit -- python -m jobs.evaluate a553eefea2d24359",
    )
    parser.add_argument("submission", help="id of the submission, 16 hex digits")
    parser.add_argument(
        "--log", choices=("text", "json"), default=settings().log, help="form of standard error (LOWBIT_LOG)"
    )
    arguments = parser.parse_args()
    # Ray stops a job with it; as an exception it lets the pod go and the lease say how it ended
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with told(arguments.log, arguments.submission) as watch:
            record = run(arguments.submission, watch)
    except LowbitError as error:
        if arguments.log == "text":
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return BUSY if isinstance(error, LeaseHeld | NoPodError) else 1
    sys.stdout.write(record.to_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
