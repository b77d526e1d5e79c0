"""A domain asked by lm-evaluation-harness: outcomes by document; the harness itself where it is installed."""

import asyncio
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fakes.bigram import Bigram
from fakes.checkpoints import write_anchor
from fakes.harness import TASK, asked, write_sums
from served import start, stop

from lowbit_ray.errors import ConfigError, EngineAnswerError
from lowbit_ray.measure.accuracy.answers import JudgedItem
from lowbit_ray.measure.accuracy.compare import compare
from lowbit_ray.measure.accuracy.lm_eval import ask_harness
from lowbit_ray.measure.accuracy.load_items import make_items
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.rules import load_rules
from lowbit_ray.tasks import AccuracyPlan, Domain, LmEvalTask

CANARY = "the hidden question about a heron"
NOWHERE = Endpoint("http://127.0.0.1:9", "m")
STAND_IN = """
import json, pathlib, sys
arguments = dict(zip(sys.argv[1:], sys.argv[2:]))
print(ROWS, file=sys.stderr)
folder = pathlib.Path(arguments["--output_path"]) / "m"
folder.mkdir()
for part in dict.fromkeys(row.get("part", "t") for row in ROWS):
    lines = [json.dumps(row) for row in ROWS if row.get("part", "t") == part]
    (folder / f"samples_{part}_2026-11-30T12-00-00.123.jsonl").write_text("\\n".join(lines))
sys.exit(CODE)
"""
"""A program with the harness's command line and log, for what the real one does not do on demand."""


def domain(**changes: Any) -> Domain:
    return Domain(items=3, max_tokens=8, lm_eval=LmEvalTask(task="t", **changes))


def stand_in(rows: list[dict[str, Any]], code: int = 0) -> tuple[str, ...]:
    return (sys.executable, "-c", STAND_IN.replace("ROWS", repr(rows)).replace("CODE", str(code)))


def ask(plan: Domain, command: tuple[str, ...], endpoint: Endpoint = NOWHERE) -> tuple[JudgedItem, ...]:
    asking = ask_harness(endpoint, "knowledge", plan, command=command, concurrency=2, timeout_s=30)
    return asyncio.run(asking)


def row(document: int, value: float, name: str = "none") -> dict[str, Any]:
    return {"doc_id": document, "filter": name, "exact_match": value, "doc": {"question": CANARY}}


def test_each_document_is_an_item_with_its_own_outcome() -> None:
    items = ask(domain(), stand_in([row(2, 0.0), row(0, 1.0), row(1, 1.0)]))
    assert [item.item_id for item in items] == ["knowledge-t-0", "knowledge-t-1", "knowledge-t-2"]
    assert [item.right for item in items] == [True, True, False]


def test_a_metric_that_is_a_share_counts_from_the_tasks_limit() -> None:
    items = ask(domain(right_from=0.5), stand_in([row(0, 0.4), row(1, 0.6)]))
    assert [item.right for item in items] == [False, True]


def test_of_several_filters_the_first_counts() -> None:
    rows = [row(0, 1.0, "strict"), row(1, 0.0, "strict"), row(0, 0.0, "flexible"), row(1, 1.0, "flexible")]
    assert [item.right for item in ask(domain(), stand_in(rows))] == [True, False]


def test_each_task_of_a_group_numbers_its_documents_by_itself() -> None:
    """And judges them by filters of its own."""
    rows = [
        {**row(0, 1.0), "part": "t_easy"},
        {**row(1, 0.0), "part": "t_easy"},
        {**row(0, 0.0, "strict"), "part": "t_hard"},
        {**row(0, 1.0, "flexible"), "part": "t_hard"},
    ]
    items = ask(domain(), stand_in(rows))
    assert [(item.item_id, item.right) for item in items] == [
        ("knowledge-t-t_easy-0", True),
        ("knowledge-t-t_easy-1", False),
        ("knowledge-t-t_hard-0", False),
    ]
    assert len({item.cluster for item in items}) == 3


def test_both_sides_are_paired_document_by_document() -> None:
    anchor = ask(domain(), stand_in([row(0, 1.0), row(1, 1.0), row(2, 0.0), row(3, 1.0)]))
    candidate = ask(domain(), stand_in([row(0, 1.0), row(1, 0.0), row(2, 1.0), row(3, 0.0)]))
    # lengths come from items of ours, of which a task needs some
    ours = anchor[0].model_copy(update={"item_id": "math-0", "domain": "math", "completion_tokens": 5})
    sides = (*anchor, ours), (*candidate, ours)
    result = compare(*sides, load_rules().gate.quality, evaluations=1).domains[0]
    assert (result.lost, result.gained, result.drop) == (2, 1, 0.25)
    assert result.valid


def test_a_harness_that_fails_is_reported_without_its_words() -> None:
    with pytest.raises(EngineAnswerError, match="exit code 3") as caught:
        ask(domain(), stand_in([row(0, 1.0)], code=3))
    assert CANARY not in str(caught.value)


def test_a_metric_that_is_not_logged_is_named() -> None:
    with pytest.raises(ConfigError, match=r"lm_eval\.metric.*expected acc"):
        ask(domain(metric="acc"), stand_in([row(0, 1.0)]))


def test_a_harness_that_is_not_there_is_named_with_its_extra() -> None:
    with pytest.raises(ConfigError, match="no-such-program") as caught:
        ask(domain(), ("no-such-program",))
    assert "lowbit-ray[lm-eval]" in caught.value.remedy


def test_an_engine_in_a_sandbox_cannot_be_asked() -> None:
    with pytest.raises(ConfigError, match="in a sandbox"):
        ask(domain(), stand_in([]), Endpoint("http://127.0.0.1:9", "m", door="/somewhere"))


def test_such_a_domain_has_no_items_of_ours() -> None:
    plan = AccuracyPlan(domains={"knowledge": domain(), "math": Domain(items=2, max_tokens=8)})
    assert {item.domain for item in make_items(plan, b"seed", evaluations=1)} == {"math"}


@pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs the lm-eval extra")
@pytest.mark.timeout(600)
def test_the_harness_asks_a_server_through_its_chat_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    rows = write_sums(tmp_path, 4)
    known = {asked(row): row["answer"] for row in rows[:3]}
    folder = tmp_path / "anchor"
    write_anchor(folder, answers="answers.json")
    (folder / "answers.json").write_text(json.dumps(known))
    plan = Domain(items=4, max_tokens=8, lm_eval=LmEvalTask(task=TASK, include_path=str(tmp_path)))
    served = start(folder, Bigram())
    try:
        items = ask(plan, (sys.executable, "-W", "ignore", "-m", "lm_eval"), served.endpoint)
    finally:
        stop(served)
    # the fake knows the answers of three of the four
    assert [item.right for item in items] == [True, True, True, False]
