"""Measures a task's noise floor: `ray job submit -- python -m jobs.noise_floor TASK --times N`.

The anchor is evaluated against itself, whole and on the path that every candidate takes; what its scores scatter by
is stored and shown beside every later score. The exit code is 0 when all evaluations were added, 75 when somebody
else is running one of them, 1 for a fault of our own (run it again: it goes on) or an anchor that fails its own rules.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from rich.console import Console

from jobs._measuring import add_log_option, carry_out
from lowbit_ray.measure.noise_floor import FloorRuns
from lowbit_ray.noise_floor import run
from lowbit_ray.report.floor import render_floors


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
    add_log_option(parser)
    arguments = parser.parse_args()
    return carry_out(
        arguments.log,
        f"noise floor of {arguments.task}",
        lambda watch: run(arguments.task, arguments.times, watch),
        partial(_show, as_json=arguments.json),
    )


def _show(runs: FloorRuns, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(runs.model_dump_json(indent=1) + "\n")
    else:
        Console().print(render_floors(runs))


if __name__ == "__main__":
    sys.exit(main())
