"""A task of lm-evaluation-harness: sums, from rows of our own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import yaml

__all__ = ["TASK", "asked", "write_sums"]

TASK = "sums"


def write_sums(folder: Path, number: int) -> list[dict[str, str]]:
    """Writes the task's file and its rows into `folder`; the rows, each a question and its answer."""
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(1, number + 1)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n"]},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (folder / f"{TASK}.yaml").write_text(yaml.safe_dump(task))
    return rows


def asked(row: dict[str, str]) -> str:
    """The key of a row's question in a fake engine's answers."""
    return hashlib.sha256(row["question"].encode()).hexdigest()
