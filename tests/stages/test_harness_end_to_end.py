"""A domain of lm-evaluation-harness through a whole evaluation: the real harness asks both sides."""

import hashlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from fakes.arena import HERE, Arena, Watching

from lowbit_ray.evaluate import evaluate
from lowbit_ray.records import Record
from lowbit_ray.rules import load_rules
from lowbit_ray.session import ray_session

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs the lm-eval extra"),
]
DOCUMENTS = 10
KNOWN, KEPT = 8, 6
"""Documents whose answer the source knows, and those of them that the candidate still does."""


@pytest.fixture(scope="module")
def watch() -> Watching:
    return Watching()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory, watch: Watching) -> Iterator[Record]:
    root = tmp_path_factory.mktemp("harness")
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(1, DOCUMENTS + 1)]
    (root / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sums = {
        "task": "sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(root / "rows.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n"]},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (root / "sums.yaml").write_text(yaml.safe_dump(sums))
    asked = {"items": DOCUMENTS, "max_tokens": 8, "lm_eval": {"task": "sums", "include_path": str(root)}}
    domains = HERE["accuracy"]["domains"] | {"math": asked}
    arena = Arena.build(root / "arena", **{**HERE, "accuracy": HERE["accuracy"] | {"domains": domains}})
    with pytest.MonkeyPatch.context() as patched, ray_session(2, local=True):
        patched.setenv("HF_HUB_OFFLINE", "1")
        patched.setenv("HF_HOME", str(root / "hub"))
        know(arena.root / "anchor", rows[:KNOWN])
        candidate = arena.candidate("forgetful", noise=0.02)
        know(candidate, rows[:KEPT], instead=rows[KEPT:KNOWN])
        submission = arena.submit(candidate)
        yield evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=watch)


def know(folder: Path, rows: list[dict[str, str]], instead: list[dict[str, str]] | None = None) -> None:
    """Writes into the fake's answers what it says to these questions; to those `instead`, something wrong."""
    answers = json.loads((folder / "answers.json").read_text())
    for row in rows:
        answers[hashlib.sha256(row["question"].encode()).hexdigest()] = row["answer"]
    for row in instead or []:
        answers[hashlib.sha256(row["question"].encode()).hexdigest()] = "no"
    (folder / "answers.json").write_text(json.dumps(answers))


def test_both_sides_are_asked_by_the_harness_and_compared_document_by_document(record: Record) -> None:
    """The candidate says what the source says in the other domains."""
    assert record.result is not None, record.error
    drop = (KNOWN - KEPT) / DOCUMENTS / record.result.quality.valid_domains
    assert record.result.mean_drop == pytest.approx(drop)
    assert record.result.mean_drop_se > 0


def test_its_documents_count_once_beside_the_items_of_the_other_domains(record: Record) -> None:
    assert record.result is not None, record.error
    others = sum(domain["items"] for name, domain in HERE["accuracy"]["domains"].items() if name != "math")
    pooled = HERE["accuracy"].get("evaluations", load_rules().gate.quality.evaluations_pooled)
    assert record.result.accuracy_items == DOCUMENTS + pooled * others


def test_whoever_watches_sees_the_harness_at_work(watch: Watching) -> None:
    assert sum(said.startswith("lm-evaluation-harness: sums") for said in watch.seen) >= 2
