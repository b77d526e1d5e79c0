"""A domain of lm-evaluation-harness through a whole evaluation: the real harness asks both sides."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from fakes.arena import HERE, Arena, Watching
from fakes.harness import TASK, asked, write_sums

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
    rows = write_sums(root, DOCUMENTS)
    sums = {"items": DOCUMENTS, "max_tokens": 8, "lm_eval": {"task": TASK, "include_path": str(root)}}
    domains = HERE["accuracy"]["domains"] | {"math": sums}
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
        answers[asked(row)] = row["answer"]
    for row in instead or []:
        answers[asked(row)] = "no"
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
    assert sum(said.startswith(f"lm-evaluation-harness: {TASK}") for said in watch.seen) >= 2
