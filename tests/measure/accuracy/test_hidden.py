"""Hidden prompts and answers appear in no log, output, error or result: canaries are planted and looked for."""

import asyncio
import io
import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowbit_ray.measure.accuracy.answers import score_sides
from lowbit_ray.measure.accuracy.compare import compare
from lowbit_ray.measure.accuracy.load_items import make_items
from lowbit_ray.measure.accuracy.run import collect_answers
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.rules import load_rules
from lowbit_ray.tasks import AccuracyPlan

CANARY = "kanarienvogel"


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """The most talkative root logger there can be."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def plan_of(folder: Path, **domains: list[str]) -> AccuracyPlan:
    """Domains whose rows hold the canary wherever a row has a text; each order goes to the chat server."""
    planned = {name: write_domain(folder / name, orders) for name, orders in domains.items()}
    return AccuracyPlan.model_validate({"domains": planned, "max_concurrency": 4})


def write_domain(folder: Path, orders: list[str]) -> dict[str, object]:
    rows = [
        {"messages": f"{order}: {CANARY} {n}", "scorer": scorer, "target": target, "options": ["x", CANARY]}
        for n, order in enumerate(orders)
        for scorer, target in (
            ("containment", CANARY),
            ("maths", f"\\frac{{{CANARY}"),
            ("choice", "B"),
            ("unit_tests", f"assert f('{CANARY}') == 1"),
            ("instructions", json.dumps([{"kind": "contains", "text": CANARY}])),
        )
    ]
    folder.mkdir()
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"items": len(rows), "max_tokens": 32, "source": {"kind": "folder", "path": str(folder)}}


def test_a_whole_run_shows_no_canary(
    tmp_path: Path, chat: Endpoint, everything_logged: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path, math=["say", "length"], code=["say", "decline", "no usage", "drop"])

    async def collect(endpoint: Endpoint) -> tuple[object, ...]:
        asyncio.get_running_loop().set_debug(True)
        items = make_items(plan, b"seed", evaluations=1)
        answers = await collect_answers(endpoint, items, plan, timeout_s=5)
        return items, answers, score_sides(items, answers)[0]

    items, answers, judged = asyncio.run(collect(chat))
    compared = compare(judged, judged, load_rules().gate.quality, evaluations=1)  # type: ignore[arg-type]
    shown = f"{items!r} {answers!r} {judged!r} {compared!r} {compared.model_dump_json()}"
    out, err = capfd.readouterr()
    assert compared.public.quality.valid_domains == 1
    for text in (shown, out, err, everything_logged.getvalue()):
        assert CANARY not in text.casefold()


def test_a_failed_run_shows_no_canary(
    tmp_path: Path, chat: Endpoint, everything_logged: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path, math=["fail"])
    items = make_items(plan, b"seed", evaluations=1)
    try:
        asyncio.run(collect_answers(chat, items, plan, timeout_s=5))
    except Exception:
        shown = traceback.format_exc()
    out, err = capfd.readouterr()
    assert "none of the accuracy items" in shown
    for text in (shown, out, err, everything_logged.getvalue()):
        assert CANARY not in text.casefold()


@pytest.mark.parametrize(
    "broken", ['{"messages": "%s"', '{"messages": "%s", "scorer": "%s"}', '["%s"]', "%s"]
)
def test_a_traceback_of_bad_data_shows_no_canary(
    broken: str, tmp_path: Path, everything_logged: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path, math=["say"])
    with (tmp_path / "math" / "items.jsonl").open("a") as file:
        file.write(broken.replace("%s", CANARY) + "\n")
    try:
        make_items(plan, b"seed", evaluations=1)
    except Exception:
        shown = traceback.format_exc()
    out, err = capfd.readouterr()
    assert "row 5" in shown
    for text in (shown, out, err, everything_logged.getvalue()):
        assert CANARY not in text.casefold()
