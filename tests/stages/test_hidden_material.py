"""What is asked of engines: fresh beginnings for every run on a server, and a key that names all that was asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from lowbit_ray.checkpoint.sealed import seal_record
from lowbit_ray.measure.accuracy.items import Item, MathsTarget, Message
from lowbit_ray.measure.prompts import PREFIX, Tokenizer
from lowbit_ray.rules import Workload, load_rules
from lowbit_ray.stages.build import Built
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.reference import reference_key
from lowbit_ray.tasks import load_task

PLAN = Workload(
    description="small",
    input_len=64,
    output_len=8,
    num_prompts=8,
    max_concurrency=4,
    request_rate="inf",
    metric="output_throughput",
    better="higher",
)
ITEM = Item(
    id="math-0",
    domain="math",
    messages=(Message(role="user", content="1 + 1"),),
    target=MathsTarget(answer="2"),
    cluster="math-0",
)


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hidden:
    """Of two workloads alike, twice each, whose seeds are unlucky enough to be the same."""
    monkeypatch.setattr(Evaluation, "seed", lambda self, *labels: b"the same")
    monkeypatch.setattr(Evaluation, "task_seed", lambda self, *labels: b"the task's")
    task = load_task("smollm2-135m").model_copy(update={"workloads": {"a": PLAN, "b": PLAN}, "repeats": 2})
    evaluation = Evaluation(
        task=task,
        rules=load_rules(),
        **dict.fromkeys(("submission", "ledger", "settings", "tenure", "watch")),  # type: ignore[arg-type]
    )
    pool = np.random.default_rng(0).integers(0, 250, 20_000).astype(np.int32)
    probes = [(1, 2), (3, 4)]
    return Hidden(evaluation, tmp_path, cast("Tokenizer", None), pool, probes, {"text": [(5, 6)]}, (ITEM,))


def beginnings(hidden: Hidden, name: str, repeat: int | str) -> set[tuple[int, ...]]:
    prompts, warm_up = hidden.timed(name, PLAN, repeat)
    assert (len(prompts), len(warm_up.prompts)) == (8, 4)
    return {tuple(prompt[:PREFIX]) for prompt in (*prompts, *warm_up.prompts)}


def test_no_two_runs_on_one_server_share_a_beginning(hidden: Hidden) -> None:
    """An engine that keeps prefixes would be taken for one that was asked before."""
    runs = [beginnings(hidden, name, repeat) for name in "ab" for repeat in range(2)]
    assert len(set[tuple[int, ...]]().union(*runs)) == 4 * 12


def test_both_sides_get_the_same_prompts(hidden: Hidden) -> None:
    assert hidden.timed("b", PLAN, 1) == hidden.timed("b", PLAN, 1)


def test_a_capped_run_has_a_server_alone(hidden: Hidden) -> None:
    assert beginnings(hidden, "b", "capped") == beginnings(hidden, "a", 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"probes": [(1, 2), (3, 5)]},
        {"windows": {"text": [(5, 7)]}},
        {"windows": {"other": [(5, 6)]}},
        {"items": (ITEM.model_copy(update={"cluster": "math-1"}),)},
        {"items": ()},
    ],
)
def test_the_anchors_part_is_kept_under_what_it_was_asked(
    hidden: Hidden, changed: dict[str, Any], tmp_path: Path
) -> None:
    """A changed data set, or a release of ours that makes other items: its answers would pair with nothing."""
    (tmp_path / "config.json").write_text("{}")
    built = Built.model_construct(source=seal_record(tmp_path, "a folder", ()), engine=None)

    def key(asked: Hidden) -> str:
        return reference_key(hidden.evaluation, built, asked, "1 × GPU", "0.25.1")

    assert key(hidden) == key(replace(hidden))
    assert key(replace(hidden, **changed)) != key(hidden)
