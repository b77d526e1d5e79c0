"""README's table of the records in benchmarks/results/h200-*.json, beside the arena's published figures.

python -m benchmarks.gpu.table [benchmarks/results]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from lowbit_ray.records import Record, Result, parse_record

__all__ = ["table"]

RESULTS = Path(__file__).parents[1] / "results"
HEAD = (
    *("evaluation", "serve", "interactive", "long context", "speed", "memory", "KL", "noise floor"),
    *("E", "score", "GPU-hours"),
)
ARENA = (
    *(
        "the arena's example: W8A8KV8 engine, real Qwen3-8B",
        "1.45",
        "1.30",
        "1.38",
        "1.37",
        "2.01",
        "0.0121",
        "",
    ),
    *("1.647", "1.615 ± 0.045", "0.78"),
)
NOTE = (
    "The last row is the arena's public record of a participant's engine on real weights. The rows above are "
    "another GPU ({gpu}), vLLM {vllm}, and round-to-nearest candidates; those named 8b have random weights of "
    "Qwen3-8B's shape, so that their speed and memory mean something and their accuracy nothing (answers end after 96 "
    "tokens); those named smollm2 have real weights, so that their KL means something and their speed nothing (without "
    "graphs, launches take the time of so small a model). Measured {dates}."
)


def table(folder: Path) -> str:
    """Markdown, or a line that says there is nothing."""
    records = [
        (path.stem.removeprefix("h200-"), parse_record(path.read_bytes()))
        for path in sorted(folder.glob("h200-*.json"))
    ]
    if not records:
        return f"No record matches h200-*.json in {folder.name}."
    lines = [_row(HEAD), _row(["---"] * len(HEAD))]
    lines += [_row(_cells(name, record)) for name, record in records]
    lines += [_row(ARENA), "", _note(record for _, record in records)]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(name: str, record: Record) -> list[str]:
    result = record.result
    hours = f"{record.charged_hours:.2f}"
    if result is None:
        return [f"{name}: {record.status}", *[""] * (len(HEAD) - 2), hours]
    return [name, *_speeds(result), *_others(result), hours]


def _speeds(result: Result) -> list[str]:
    each = (result.speeds.get(workload) for workload in ("serve", "interactive", "long_context"))
    return [*("" if value is None else f"{value:.2f}" for value in each), f"{result.speed:.2f}"]


def _others(result: Result) -> list[str]:
    return [
        f"{result.memory:.2f}",
        f"{result.kl.kl:.4f}",
        f"{result.noise_floor.kl:.5f}",
        f"{result.efficiency_gain:.3f}",
        f"{result.score:.3f} ± {result.score_se:.3f}"
        if result.score_se is not None
        else f"{result.score:.3f}",
    ]


def _note(records: Iterable[Record]) -> str:
    known = list(records)
    hosts = [record.host for record in known if record.host is not None]
    gpus = sorted({gpu.name for host in hosts for gpu in host.gpus})
    releases = sorted({host.vllm for host in hosts if host.vllm})
    dates = sorted({record.updated_at.date().isoformat() for record in known})
    return NOTE.format(
        gpu=", ".join(gpus) or "none", vllm=", ".join(releases) or "not known", dates=", ".join(dates)
    )


def main() -> int:
    """Prints the table."""
    print(table(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
