"""`lowbit engine test` on fake engines: an honest one is good throughout, each fault is said with what to change."""

from pathlib import Path
from typing import Any

import pytest
from fakes.arena import Arena
from fakes.launched import write_launch

from lowbit_ray.doctor.finding import Finding, healthy
from lowbit_ray.rehearsal.rehearse import rehearsal

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    return Arena.build(tmp_path_factory.mktemp("arena"))


def rehearsed(arena: Arena, folder: Path, *lines: str, **fake: Any) -> list[Finding]:
    checkpoint = arena.candidate(f"candidate-{folder.name}", **fake)
    engine = write_launch(folder / "engine", *lines)
    whole = rehearsal(str(engine), str(checkpoint), "fake", "", folder / "kept", arena.settings)
    return list(whole.findings(lambda _: None))


def test_an_honest_engine_is_good_in_everything(arena: Arena, tmp_path: Path) -> None:
    found = rehearsed(arena, tmp_path)
    assert [(one.what, one.found) for one in found if one.level == "bad"] == []
    made = {one.what for one in found}
    assert {"serve", "log-probabilities", "order", "one face", "answer cache", "chat"} <= made
    assert {"hard cap", "end"} <= made


@pytest.mark.parametrize(
    ("faults", "what"),
    [
        ({"short": 3}, "answers"),
        ({"no_logprobs": True}, "log-probabilities"),
        ({"order_dependent": True}, "order"),
        ({"answer_cache": True}, "answer cache"),
        ({"dead_at_load": True}, "start"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_fault_is_said_with_what_to_change(
    arena: Arena, tmp_path: Path, faults: dict[str, Any], what: str
) -> None:
    found = rehearsed(arena, tmp_path, faults=faults)
    bad = {one.what: one for one in found if one.level == "bad"}
    assert what in bad
    assert not healthy(found)


def test_a_folder_without_launch_sh_is_said_before_anything_runs(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.sh").touch()
    checkpoint = arena.candidate("unlaunched")
    whole = rehearsal(str(tmp_path / "empty"), str(checkpoint), "fake", "", tmp_path / "kept", arena.settings)
    (only,) = whole.findings(lambda _: None)
    assert only.level == "bad"
    assert "launch.sh" in only.found


def test_an_engine_that_phones_home_finds_no_network(arena: Arena, tmp_path: Path) -> None:
    found = rehearsed(arena, tmp_path, "(echo > /dev/tcp/1.1.1.1/80) 2>/dev/null && exit 3 || true")
    assert healthy(found)
