"""Engine-track submissions from the folder to the record, on a real local Ray, with the fake engine in a sandbox."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.arena import Arena, Watching
from fakes.launched import write_launch

from lowbit_ray.engines.sandbox import sandbox_support
from lowbit_ray.evaluate import evaluate
from lowbit_ray.records import Record
from lowbit_ray.session import ray_session
from lowbit_ray.submission import Address

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not sandbox_support().user, reason=f"no sandbox: {sandbox_support().reason}"),
]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ray_session(2, local=True):
        yield Arena.build(tmp_path_factory.mktemp("arena"))


def run(arena: Arena, checkpoint: Path, engine: Path, **changes: Any) -> Record:
    address = Address(kind="folder", location=str(engine))
    submission = arena.submit(checkpoint, track="engine", engine=address, **changes)
    return evaluate(submission.id, ledger=arena.ledger, settings=arena.settings, watch=Watching())


def test_an_engine_of_its_own_is_scored_in_a_sandbox(arena: Arena) -> None:
    record = run(arena, arena.candidate("int8"), write_launch(arena.root / "engine"))
    assert record.status == "done", record.error
    assert record.result is not None
    assert record.result.score > 0
    assert (
        record.result.engine.startup is None
    )  # it keeps no accounts, so that its peak is the device's count
    assert record.isolation is not None
    assert record.isolation.kind == "bubblewrap"
    assert record.isolation.network == "none"
    assert record.isolation.processes == "own"


def test_a_folder_without_launch_sh_is_rejected_by_name(arena: Arena, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("exit 0\n")
    record = run(arena, arena.candidate("unlaunched"), tmp_path)
    assert record.status == "rejected"
    assert "launch.sh" in (record.error or "")
