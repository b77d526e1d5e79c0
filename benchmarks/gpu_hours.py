"""Where GPU time goes: seconds a pod was held, seconds its engine was answering, and their ratio, step by step.

    python -m benchmarks.gpu_hours                          # the kept runs on an H200
    python -m benchmarks.gpu_hours record.json --json       # any record, as the service or a job prints it

Held and answering are the record's own (`time_line`); answering counts a second in which at least one request of
ours was open. Records made before that was measured have a table of steps beside them (`stages-*.json`), in which the
GPU itself was sampled from outside; then the column says so. What the pod was held for beside the steps (engines that
end, results of the anchor that later evaluations reuse) is one row of its own; what was busy in it is not known, so
the ratio of the whole is a lower bound. The goal is 0.9.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).parent / "results"
GOAL = 0.9
BETWEEN = "between steps"

__all__ = ["GpuHours", "Row", "read", "table"]


@dataclass(frozen=True, slots=True)
class Row:
    """One step, in GPU-seconds: seconds times the pod's GPUs."""

    step: str
    held: float
    busy: float | None
    """None where it was not measured."""

    @property
    def ratio(self) -> float | None:
        return None if self.busy is None or not self.held else self.busy / self.held


@dataclass(frozen=True, slots=True)
class GpuHours:
    """One evaluation."""

    name: str
    gpus: int
    source: Literal["requests", "GPU"] | None
    """What `busy` is of: our requests that were open, or the GPU as NVML sampled it; None where neither was kept."""
    rows: tuple[Row, ...]

    @property
    def total(self) -> Row:
        """All steps; busy counts what was measured."""
        known = [row.busy for row in self.rows if row.busy is not None]
        return Row("all", sum(row.held for row in self.rows), sum(known) if known else None)


def read(path: Path) -> GpuHours:
    """Reads a record; ValueError where the file is none."""
    record = json.loads(path.read_text())
    if not isinstance(record, dict) or "time_line" not in record:
        raise ValueError(f"{path}: no record with a time line")
    gpus = max(1, len((record.get("host") or {}).get("gpus", [])))
    steps = [step for step in record["time_line"] if step["pod_seconds"] > 0]
    busy, source = _busy(path, steps)
    rows = [
        Row(_title(step["name"]), gpus * step["pod_seconds"], None if value is None else gpus * value)
        for step, value in zip(steps, busy, strict=True)
    ]
    # the charge of all attempts; of an evaluation without faults, its one pod's
    between = 3600 * record.get("charged_hours", 0.0) - sum(row.held for row in rows)
    if between > 0.5:
        rows.append(Row(BETWEEN, between, None))
    return GpuHours(path.stem, gpus, source, tuple(rows))


def _busy(
    path: Path, steps: list[dict[str, Any]]
) -> tuple[list[float | None], Literal["requests", "GPU"] | None]:
    """Busy seconds of each step, and what they are of."""
    own = [step.get("busy_seconds") for step in steps]
    if any(own):
        return own, "requests"
    beside = path.with_name(f"stages-{path.stem.removeprefix('h200-')}.json")
    if not beside.is_file():
        return [None] * len(steps), None
    kept = {row["step"]: row["busy_seconds"] for row in json.loads(beside.read_text())["steps"]}
    return [kept.get(step["name"]) for step in steps], "GPU"


def _title(step: str) -> str:
    """Without the pod's name."""
    kind, _, rest = step.partition("-")
    return f"{kind} {rest.rpartition('-')[0]}".strip()


def table(found: GpuHours) -> str:
    """The rows as text; the goal stands beside the sum."""
    of = {"requests": "answering", "GPU": "GPU busy", None: "busy"}[found.source]
    lines = [f"{found.name}, {found.gpus} GPU", f"{'step':<28}{'GPU-s held':>12}{of:>12}{'ratio':>8}"]
    for row in (*found.rows, found.total):
        busy = "—" if row.busy is None else f"{row.busy:.1f}"
        ratio = "—" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"{row.step:<28}{row.held:>12.1f}{busy:>12}{ratio:>8}")
    if found.total.ratio is not None:
        lines[-1] += f"   goal {GOAL}"
    return "\n".join(lines)


def main() -> int:
    """Prints a table, or JSON, of each record; 2 where a file is none."""
    parser = argparse.ArgumentParser(description="GPU-seconds held and used, step by step.")
    parser.add_argument("records", nargs="*", type=Path, help="records (default: the kept H200 runs)")
    parser.add_argument("--json", action="store_true", help="one JSON list")
    given = parser.parse_args()
    paths = given.records or sorted(RESULTS.glob("h200-*.json"))
    try:
        found = [read(path) for path in paths]
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if given.json:
        print(
            json.dumps(
                [asdict(one) | {"total": asdict(one.total), "ratio": one.total.ratio} for one in found]
            )
        )
    else:
        print("\n\n".join(table(one) for one in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
