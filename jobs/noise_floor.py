"""Measures a task's noise floor: `ray job submit -- python -m jobs.noise_floor TASK --times N`.

The anchor is evaluated against itself, whole and on the path that every candidate takes; what its scores scatter by
is stored and shown beside every later score. The exit code is 0 when all evaluations were added, 75 when somebody
else is running one of them, 1 for a fault of our own (run it again: it goes on) or an anchor that fails its own rules.
"""

from __future__ import annotations

import argparse
import signal
import sys

from rich.console import Console

from lowbit_ray.errors import LowbitError
from lowbit_ray.evaluate import BUSY
from lowbit_ray.lease import LeaseHeld
from lowbit_ray.noise_floor import run
from lowbit_ray.report.floor import render_floors
from lowbit_ray.report.log import told
from lowbit_ray.settings import settings


def main() -> int:
    """Parses the command line, evaluates, prints the floor."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.noise_floor",
        description="Evaluate a task's anchor against itself on this Ray cluster: the noise floor of every score.",
        epilog="Example: ray job submit -- python -m jobs.noise_floor qwen3-8b --times 3",
    )
    parser.add_argument("task", help="name of the task, such as qwen3-8b")
    parser.add_argument("--times", type=int, default=3, help="evaluations to add (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON: every evaluation so far")
    parser.add_argument(
        "--log", choices=("text", "json"), default=settings().log, help="form of standard error (LOWBIT_LOG)"
    )
    arguments = parser.parse_args()
    # Ray stops a job with it; as an exception it lets the pod go and the lease say how it ended
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with told(arguments.log, f"noise floor of {arguments.task}") as watch:
            runs = run(arguments.task, arguments.times, watch)
    except LowbitError as error:
        if arguments.log == "text":
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return BUSY if isinstance(error, LeaseHeld) else 1
    if arguments.json:
        sys.stdout.write(runs.model_dump_json(indent=1) + "\n")
    else:
        Console().print(render_floors(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
