"""Folders of submissions that are over make room for what is fetched; all others stay."""

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.arena import SMALL, Arena

from lowbit_ray.checkpoint.fetch import seal
from lowbit_ray.errors import CheckpointError
from lowbit_ray.lease import Lease, hold
from lowbit_ray.stages.build import build
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.room import ANCHOR_S, MARGIN, make_room
from lowbit_ray.submission import Submission


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena.build(tmp_path / "arena", **SMALL)


def fetched(arena: Arena, **objects: bytes) -> Submission:
    """A submission with its folder, and these objects in the ledger."""
    one = arena.submit(arena.root / "anchor")
    folder = arena.settings.cache / "submissions" / one.id
    seal(arena.root / "anchor", folder / "checkpoint", limit_gib=1)
    for name, data in objects.items():
        assert arena.ledger.create(f"submissions/{one.id}/{name}.json", data)
    at = len(list(folder.parent.iterdir()))
    os.utime(folder, (at, at))  # in the order of fetching, however quick that was
    return one


def there(arena: Arena) -> set[str]:
    return {folder.name for folder in (arena.settings.cache / "submissions").iterdir()}


def room(arena: Arena, free: list[int], *, kept: int = 8) -> list[str]:
    """As many bytes are free at each look; 100 are needed."""
    settings = arena.settings.model_copy(update={"kept": kept})
    return make_room(settings, arena.ledger, 100, free=lambda _: free.pop(0))


def test_while_there_is_room_all_stay(arena: Arena) -> None:
    fetched(arena, record=b"{}")
    assert room(arena, [MARGIN + 100]) == []


def test_the_oldest_that_are_over_go_until_there_is_room(arena: Arena) -> None:
    over = [fetched(arena, record=b"{}") for _ in range(3)]
    assert room(arena, [0, 0, MARGIN + 100]) == [one.id for one in over[:2]]
    assert there(arena) == {over[2].id}


def test_those_that_are_not_over_stay_whatever_is_missing(arena: Arena) -> None:
    """At work, waiting, or another ledger's."""
    waits = fetched(arena)
    cancelled = fetched(arena, cancelled=b"{}")
    lease = Lease(holder="elsewhere:1:x", attempt=0, renewed_at=datetime.now(UTC))
    stops = fetched(arena, cancelled=b"{}", lease=lease.model_dump_json().encode())
    (arena.settings.cache / "submissions" / ("f" * 16)).mkdir()
    (arena.settings.cache / "submissions" / "odd").mkdir()
    assert room(arena, [0] * 9) == [cancelled.id]
    assert there(arena) == {waits.id, stops.id, "f" * 16, "odd"}


def test_no_more_are_kept_than_the_settings_say(arena: Arena) -> None:
    over = [fetched(arena, record=b"{}") for _ in range(3)]
    assert room(arena, [2**60], kept=1) == [one.id for one in over[:2]]


def test_compiled_graphs_of_pods_that_are_gone_go(arena: Arena) -> None:
    anchors = arena.settings.cache / "anchors" / "0123"
    for name, age in {"gone": ANCHOR_S + 60, "used": 60}.items():
        (anchors / name / "vllm").mkdir(parents=True)
        at = (datetime.now(UTC) - timedelta(seconds=age)).timestamp()
        os.utime(anchors / name, (at, at))
    assert room(arena, []) == []
    assert [folder.name for folder in anchors.iterdir()] == ["used"]


def attempt(arena: Arena, submission: Submission, tenure: Any, **settings: Any) -> Evaluation:
    return arena.attempt(submission, tenure, settings=arena.settings.model_copy(update=settings))


def test_a_fetch_makes_room(arena: Arena) -> None:
    old, new = fetched(arena, record=b"{}"), arena.submit(arena.candidate("new"))
    with hold(arena.ledger, new.id) as tenure:
        built = build(attempt(arena, new, tenure, kept=0))
    assert there(arena) == {new.id}
    assert old.id not in str(built.candidate.path)


def test_a_checkpoint_that_is_gone_with_its_cache_is_fetched_again(arena: Arena) -> None:
    one = arena.submit(arena.candidate("one"))
    with hold(arena.ledger, one.id) as tenure:
        first = build(attempt(arena, one, tenure))
        shutil.rmtree(arena.settings.cache / "submissions", onerror=_writable)
        assert build(attempt(arena, one, tenure)) == first
        assert (first.candidate.path / "config.json").is_file()


def test_one_that_holds_something_else_by_then_is_refused(arena: Arena) -> None:
    folder = arena.candidate("one")
    one = arena.submit(folder)
    with hold(arena.ledger, one.id) as tenure:
        build(attempt(arena, one, tenure))
        shutil.rmtree(arena.settings.cache / "submissions", onerror=_writable)
        (folder / "extra.txt").write_text("another")
        with pytest.raises(CheckpointError, match="has changed since"):
            build(attempt(arena, one, tenure))


def _writable(remove: Any, path: str, _: object) -> None:
    Path(path).parent.chmod(0o755)
    remove(path)
