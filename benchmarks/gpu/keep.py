"""What is kept of each evaluation, as soon as there is something: record, page, stage table, logs, all in one archive.

Written again and again while evaluations run, so that a run which is cut off leaves what it had. Hidden material
(prompts, outputs, answers) is left out.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.plan import Entry
from benchmarks.gpu.watch import busy_seconds
from lowbit_ray.ledger import Ledger
from lowbit_ray.records import Record, parse_record
from lowbit_ray.report.page import result_page

__all__ = ["Kept", "keep", "pack"]

HIDDEN = {"outputs", "answers", "start_log", "texts"}
HEAD_BYTES, TAIL_BYTES = 2 * 2**20, 2**19
"""Of a log, where it is larger than both."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where things are kept, and where they come from."""

    out: Path
    cache: Path
    ledger: Ledger
    gpus: Path
    """Samples of `GpuWatch`."""


def keep(kept: Kept, entry: Entry, submission: str) -> None:
    """Writes what there is of one evaluation so far."""
    stages = _stages(kept, submission)
    record = _record(kept, submission)
    if record is not None:
        (kept.out / f"record-{entry.name}.json").write_text(record.to_json() + "\n")
        (kept.out / f"page-{entry.name}.html").write_text(result_page(record))
    table = _table(kept, entry, record, stages)
    (kept.out / f"stages-{entry.name}.json").write_text(json.dumps(table, indent=1) + "\n")
    (kept.out / f"stages-{entry.name}.txt").write_text(_text(table) + "\n")
    (kept.out / f"measured-{entry.name}.json").write_text(json.dumps(stages, indent=1) + "\n")
    for log in sorted((kept.cache / "submissions" / submission / "logs").glob("*.log")):
        (kept.out / f"log-{entry.name}-{log.stem}.log.gz").write_bytes(gzip.compress(_shortened(log), 6))


def pack(out: Path) -> Path:
    """`results.tar.gz` of everything there; replaced in one go, so that it can be copied at any time."""
    part, whole = out / ".results.part", out / "results.tar.gz"
    with tarfile.open(part, "w:gz", compresslevel=6) as archive:
        for path in sorted(out.iterdir()):
            if path.is_file() and path not in (part, whole) and not path.name.startswith("."):
                archive.add(path, path.name)
    part.replace(whole)
    return whole


def _record(kept: Kept, submission: str) -> Record | None:
    entry = kept.ledger.read(f"submissions/{submission}/record.json")
    return None if entry is None else parse_record(entry.data)


def _stages(kept: Kept, submission: str) -> dict[str, Any]:
    """Every finished step as the ledger has it, without what is hidden."""
    found: dict[str, Any] = {}
    for key in kept.ledger.keys(f"submissions/{submission}/stages/"):
        entry = kept.ledger.read(key)
        if entry is not None:
            found[Path(key).stem] = _shown(json.loads(entry.data))
    return found


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shown(inner) for name, inner in value.items() if name not in HIDDEN}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


def _table(kept: Kept, entry: Entry, record: Record | None, stages: dict[str, Any]) -> dict[str, Any]:
    """One row a step, and the sums; seconds are wall time."""
    uuid = _gpu(record, stages)
    rows = [
        _row(kept, uuid, name, step) for name, step in stages.items() if not name.startswith("efficiency")
    ]
    rows.sort(key=lambda row: row["started_at"])
    busy = [row["busy_seconds"] for row in rows if row["busy_seconds"] is not None]
    return {
        "name": entry.name,
        "status": record.status if record else "not finished",
        "charged_gpu_hours": record.charged_hours if record else None,
        "steps": rows,
        "pod_seconds": round(sum(row["pod_seconds"] for row in rows), 1),
        "timed_seconds": round(sum(row["timed_seconds"] for row in rows), 1),
        "busy_seconds": round(sum(busy), 1) if busy else None,
    }


def _row(kept: Kept, uuid: str | None, name: str, step: dict[str, Any]) -> dict[str, Any]:
    took, value = step["time"], step["value"]
    side = value.get("timed", value)  # the anchor's step holds its timed side and its audits
    runs = [run for repeats in side.get("runs", {}).values() for run in repeats]
    start = datetime.fromisoformat(took["started_at"]).timestamp()
    return {
        "step": name,
        "started_at": took["started_at"],
        "seconds": round(took["seconds"], 1),
        "pod_seconds": round(took["pod_seconds"], 1),
        "engine_start_seconds": round(side["start_seconds"], 1) if "start_seconds" in side else None,
        "timed_seconds": round(sum(run["wall_s"] for run in runs), 1),
        "workload_seconds": {run["name"]: round(run["wall_s"], 1) for run in runs},
        "busy_seconds": busy_seconds(kept.gpus, uuid, start, start + took["seconds"]) if uuid else None,
    }


def _gpu(record: Record | None, stages: dict[str, Any]) -> str | None:
    """The GPU's UUID: of the record, or of the host that the finished efficiency step names."""
    if record is not None and record.host is not None:
        return record.host.gpus[0].uuid if record.host.gpus else None
    gpus = stages.get("efficiency", {}).get("value", {}).get("host", {}).get("gpus") or []
    return gpus[0]["uuid"] if gpus else None


def _text(table: dict[str, Any]) -> str:
    lines = [
        f"{table['name']}: {table['status']}, {table['charged_gpu_hours']} GPU-hours charged",
        f"{'step':<44}{'seconds':>9}{'pod':>9}{'start':>8}{'timed':>8}{'busy':>8}",
    ]
    for row in table["steps"]:
        figures = (row["seconds"], row["pod_seconds"], row["engine_start_seconds"], row["timed_seconds"])
        lines.append(f"{row['step'][:43]:<44}" + _cells((*figures, row["busy_seconds"]), (9, 9, 8, 8, 8)))
    sums = ("", table["pod_seconds"], None, table["timed_seconds"], table["busy_seconds"])
    lines.append(f"{'all':<44}" + _cells(sums, (9, 9, 8, 8, 8)))
    return "\n".join(lines)


def _cells(values: tuple[Any, ...], widths: tuple[int, ...]) -> str:
    return "".join(
        f"{'' if value is None else value:>{width}}" for value, width in zip(values, widths, strict=True)
    )


def _shortened(log: Path) -> bytes:
    data = log.read_bytes()
    if len(data) <= HEAD_BYTES + TAIL_BYTES:
        return data
    return data[:HEAD_BYTES] + b"\n[... left out here ...]\n" + data[-TAIL_BYTES:]
