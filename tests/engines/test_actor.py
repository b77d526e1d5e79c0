"""The actor in this process: what a question returns, and what is said of an engine that died meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lowbit_ray.engines.actor import EngineActor
from lowbit_ray.engines.process import EngineProcess
from lowbit_ray.errors import EngineAnswerError, PodError
from lowbit_ray.measure.accuracy.run import SETTLE_S
from lowbit_ray.measure.endpoint import Endpoint

ACTOR = EngineActor.__ray_metadata__.modified_class  # type: ignore[attr-defined]  # the class itself, without Ray


@pytest.fixture
def actor(make_engine: Callable[..., EngineProcess], tmp_path: Path) -> Iterator[Any]:
    made = ACTOR("cpu", 1.0)
    made.start(make_engine("good").spec, tmp_path / "actor.log", None)
    yield made
    made.stop()


def engine_of(actor: Any) -> psutil.Process:
    [engine] = [one for one in actor._running().tree() if "servers.py" in " ".join(one.cmdline())]
    return engine


def test_an_answer_of_a_living_engine_is_returned(actor: Any) -> None:
    async def question(endpoint: Endpoint, progress: Any) -> str:
        return endpoint.url

    assert actor.ask(question, "asking").startswith("http://127.0.0.1:")


def test_a_failure_of_a_living_engine_stays_what_it_is(actor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowbit_ray.engines.actor.DYING_S", 0.2)

    async def question(endpoint: Endpoint, progress: Any) -> None:
        raise EngineAnswerError("half an answer", where="/v1/completions")

    with pytest.raises(EngineAnswerError, match="half an answer"):
        actor.ask(question, "asking")


def test_an_engine_of_ours_that_is_killed_is_no_fault_of_the_candidates(actor: Any) -> None:
    """Accuracy puts up with items that fail, but not with a server that is gone."""

    async def question(endpoint: Endpoint, progress: Any) -> str:
        os.kill(engine_of(actor).pid, signal.SIGKILL)
        await asyncio.sleep(SETTLE_S)
        return "half of the answers"

    with pytest.raises(PodError, match="the engine died"):
        actor.ask(question, "accuracy items of the candidate")
