"""An arena for engines that are handed in, each evaluated as any other on the engine track."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.arena import SPEED, Arena, Watching
from fakes.checkpoints import write_candidate
from red import TASK, Submit, engine_folder, hidden_items, hidden_text, left_behind

from lowbit_ray.engines.sandbox import sandbox_support
from lowbit_ray.evaluate import evaluate
from lowbit_ray.records import Record
from lowbit_ray.rules import DEFAULT_RULES
from lowbit_ray.session import ray_session

NUMBER = itertools.count(1)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    if not sandbox_support().user:
        pytest.skip(f"no sandbox: {sandbox_support().reason}")
    with ray_session(2, local=True):
        root = tmp_path_factory.mktemp("redteam")
        (root / "texts").mkdir()
        (root / "texts" / "hidden.txt").write_text(hidden_text())
        source = {"kind": "folder", "path": str(root / "texts")}
        windows = {"hidden": {"source": source, "windows": 2, "window_len": 64}}
        rules = json.loads(DEFAULT_RULES.read_text())
        rules["engine"]["budget_rate"] = (
            0.3  # the machine may be busy; what is capped here keeps its pace or dies
        )
        (root / "rules.json").write_text(json.dumps(rules))
        (root / "items").mkdir()
        (root / "items" / "rows.jsonl").write_text(hidden_items())
        items = {"kind": "folder", "path": str(root / "items")}
        domains = TASK["accuracy"]["domains"]
        domains = {**domains, "knowledge": {**domains["knowledge"], "source": items}}
        yield Arena.build(
            root,
            **{**TASK, "accuracy": {**TASK["accuracy"], "domains": domains}},
            prompts=source,
            perplexity=windows,
        )


@pytest.fixture
def submit(arena: Arena) -> Iterator[Submit]:
    """Evaluates an engine of `program` on the engine track; afterwards nothing of it is left."""

    def evaluated(program: str, name: str, *, second: int = 0, **fake: Any) -> Record:
        label = f"{name}-{next(NUMBER)}"
        folder = engine_folder(arena.root / f"engine-{label}", program, name)
        if second:
            (folder / "second.safetensors").write_bytes(b"x" * second)
        checkpoint = arena.root / f"checkpoint-{label}"
        write_candidate(
            checkpoint, precision="int8", **{**SPEED, "answers": "answers.json", "noise": 0.1, **fake}
        )
        arena._write_answers(checkpoint)
        submission = arena.submit(
            checkpoint, track="engine", engine={"kind": "folder", "location": str(folder)}
        )
        settings = arena.settings.model_copy(update={"rules": arena.root / "rules.json"})
        return evaluate(submission.id, ledger=arena.ledger, settings=settings, watch=Watching())

    yield evaluated
    assert left_behind(arena.root) == []
