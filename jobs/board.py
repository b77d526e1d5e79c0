"""Prints the board of a task: `ray job submit -- python -m jobs.board TASK`. It needs the ledger alone, and no GPU."""

from __future__ import annotations

import argparse
import csv
import json
import sys

from rich.console import Console

from lowbit_ray.board import Row
from lowbit_ray.errors import LowbitError
from lowbit_ray.index import Index
from lowbit_ray.ledger import open_ledger
from lowbit_ray.report.brief import board_table
from lowbit_ray.rules import load_rules
from lowbit_ray.settings import settings
from lowbit_ray.tasks import load_task

WIDTH = 160
"""Columns where the output is no terminal."""


def main() -> int:
    """Parses the command line and prints; 2 where the ledger or the task cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.board",
        description="Print the board of a task from the ledger (LOWBIT_LEDGER).",
        epilog="Example: ray job submit -- python -m jobs.board qwen3-8b --csv",
    )
    parser.add_argument("task", help="name of the task, such as qwen3-8b")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON list, every figure of every row")
    form.add_argument("--csv", action="store_true", help="comma-separated values with a header, every figure")
    given = parser.parse_args()
    try:
        rows = _rows(given.task)
    except LowbitError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    if given.json:
        sys.stdout.write(json.dumps([row.model_dump(mode="json") for row in rows], indent=1) + "\n")
    elif given.csv:
        writer = csv.DictWriter(sys.stdout, list(Row.model_fields), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row.model_dump(mode="json") for row in rows)
    else:
        console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
        console.print(board_table({"rows": [row.model_dump() for row in rows]}))
    return 0


def _rows(task: str) -> list[Row]:
    configured = settings()
    load_task(task, configured.tasks)
    index = Index(open_ledger(configured.ledger))
    index.refresh()
    return index.board(task, load_rules(configured.rules))


if __name__ == "__main__":
    sys.exit(main())
