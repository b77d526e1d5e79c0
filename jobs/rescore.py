"""Scores old measurements by new rules: `ray job submit -- python -m jobs.rescore TASK --rules new.json`.

Prints how the board would move; it stores nothing and needs no GPU. The exit code is 0 when nothing would change, 1
when something would, 2 when the new rules cannot be applied to what was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from lowbit_ray.errors import LowbitError
from lowbit_ray.evaluate import read_record
from lowbit_ray.index import Index
from lowbit_ray.ledger import open_ledger
from lowbit_ray.report.moves import moves_table
from lowbit_ray.rescore import Move, moves, unjudged
from lowbit_ray.rules import load_rules
from lowbit_ray.settings import settings
from lowbit_ray.tasks import load_task

WIDTH = 160
"""Columns where the output is no terminal."""


def main() -> int:
    """Parses the command line, scores again, prints what moves."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.rescore",
        description="Apply new rules to the measurements of all records of a task, and print how the board moves.",
        epilog="Example: ray job submit --working-dir . -- python -m jobs.rescore qwen3-8b --rules v24.json",
    )
    parser.add_argument("task", help="name of the task, such as qwen3-8b")
    parser.add_argument("--rules", type=Path, required=True, help="the new rules file")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object: moves, and what cannot be judged"
    )
    given = parser.parse_args()
    try:
        found, notes = _compare(given.task, given.rules)
    except LowbitError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    if given.json:
        told = {"moves": [move.model_dump(mode="json") for move in found], "unjudged": notes}
        sys.stdout.write(json.dumps(told, indent=1) + "\n")
    else:
        console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
        console.print(moves_table(found))
        for note in notes:
            console.print(f"Not judged: {note}.")
        console.print(f"{sum(move.changed for move in found)} of {len(found)} rows change.")
    return 1 if any(move.changed for move in found) else 0


def _compare(task_id: str, path: Path) -> tuple[list[Move], list[str]]:
    configured = settings()
    task, ledger = load_task(task_id, configured.tasks), open_ledger(configured.ledger)
    old, new = load_rules(configured.rules), load_rules(path.resolve())
    index = Index(ledger)
    index.refresh()
    standings = [each for each in index.finished() if each.submission.task_id == task_id]
    records = [record for each in standings if (record := read_record(ledger, each.id)) is not None]
    flags = {each.id: each.flag.reason for each in standings if each.flag is not None}
    notes = unjudged(old, new, records) if task.workloads is None else []
    hours = index.stopped_hours(task_id)
    return moves(records, old, new, floor_of=task.floor, off_board=flags, stopped=hours), notes


if __name__ == "__main__":
    sys.exit(main())
