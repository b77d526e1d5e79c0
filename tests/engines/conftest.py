"""Specs of the small servers in servers.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.engines.spec import EngineSpec

SERVERS = Path(__file__).with_name("servers.py")
MakeEngine = Callable[..., EngineProcess]


def server_spec(mode: str, folder: Path, **changes: object) -> EngineSpec:
    kind = changes.pop("kind", "vllm")
    fields: dict[str, object] = {
        "kind": kind,
        "device": "cpu",
        "command": (sys.executable, str(SERVERS), *mode.split()),
        "environment": {},
        "folder": folder,
        "model_dir": folder,
        "start_timeout_s": 20.0,
    }
    return EngineSpec.model_validate(fields | changes)


@pytest.fixture
def make_engine(tmp_path: Path) -> Iterator[MakeEngine]:
    """An engine in one of the modes of servers.py, not started; stopped after the test."""
    made: list[EngineProcess] = []

    def make(
        mode: str, *, grace_s: float = 1.0, sample_interval_s: float = 0.1, **changes: object
    ) -> EngineProcess:
        spec = server_spec(mode, tmp_path, **changes)
        log = tmp_path / f"engine-{len(made)}.log"
        engine = EngineProcess(spec, log, grace_s=grace_s, sample_interval_s=sample_interval_s)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.stop()
