"""The whole way against the fake engine, which knows the right answer to some questions."""

import asyncio
import hashlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.checkpoints import write_anchor
from fakes.ports import free_port

from lowbit_ray.measure.accuracy.answers import JudgedItem, score_sides
from lowbit_ray.measure.accuracy.compare import compare
from lowbit_ray.measure.accuracy.items import ContainmentTarget, Item, MathsTarget
from lowbit_ray.measure.accuracy.lengths import check_lengths
from lowbit_ray.measure.accuracy.load_items import make_items
from lowbit_ray.measure.accuracy.run import collect_answers
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.rules import load_rules
from lowbit_ray.tasks import AccuracyPlan

ENGINE = Path(__file__).parents[2] / "fakes" / "engine.py"
PLAN = AccuracyPlan.model_validate(
    {
        "domains": {
            "math": {"items": 40, "max_tokens": 16},
            "retrieval": {"items": 40, "max_tokens": 16, "context_tokens": 64},
        }
    }
)


@contextmanager
def engine(folder: Path) -> Iterator[Endpoint]:
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            str(ENGINE),
            "--model",
            str(folder),
            "--port",
            str(port),
            "--served-model-name",
            "m",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        yield Endpoint(url=f"http://127.0.0.1:{port}", model="m")
    finally:
        process.kill()
        process.wait()


def right_answer(item: Item) -> str:
    if isinstance(item.target, MathsTarget):
        return item.target.answer
    assert isinstance(item.target, ContainmentTarget)
    return item.target.any_of[0]


def judged_by_engine(folder: Path, items: tuple[Item, ...], bad_answers: float) -> tuple[JudgedItem, ...]:
    known = {
        hashlib.sha256(item.messages[-1].content.encode()).hexdigest(): right_answer(item) for item in items
    }
    write_anchor(folder, answers="answers.json", bad_answers=bad_answers)
    (folder / "answers.json").write_text(json.dumps(known))
    with engine(folder) as endpoint:
        answers = asyncio.run(collect_answers(endpoint, items, PLAN, timeout_s=20))
    check_lengths(answers, folder / "tokenizer.json")
    return score_sides(items, answers)[0]


def test_an_engine_that_spoils_a_share_of_the_answers_drops_by_that_share(tmp_path: Path) -> None:
    items = make_items(PLAN, b"seed", evaluations=2)
    anchor = judged_by_engine(tmp_path / "anchor", items, 0.0)
    candidate = judged_by_engine(tmp_path / "candidate", items, 0.2)
    assert all(item.right for item in anchor)
    # the fake engine spoils an answer where its question's hash lies below the share
    hashes = [hashlib.sha256(item.messages[-1].content.encode()).hexdigest() for item in items]
    spoiled = [int(digest[:8], 16) / 2**32 < 0.2 for digest in hashes]
    assert [item.right for item in candidate] == [not bad for bad in spoiled]
    result = compare(anchor, candidate, load_rules().gate.quality, evaluations=2).public
    assert result.mean_drop == pytest.approx(sum(spoiled) / len(spoiled))
    assert result.quality.tier is None
    assert result.quality.valid_domains == 2
