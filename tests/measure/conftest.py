"""Two fake engines for all tests of measure/: an anchor and its candidate, told anew for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.bigram import Bigram
from fakes.checkpoints import write_anchor, write_candidate
from served import NOISE, PACE, Served, Start, start, stop


@pytest.fixture(scope="session")
def running_anchor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start(write_anchor(tmp_path_factory.mktemp("models") / "anchor", tokens_per_s=PACE), Bigram())
    yield served
    stop(served)


@pytest.fixture(scope="session")
def running_candidate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write_candidate(tmp_path_factory.mktemp("models") / "candidate", noise=NOISE, tokens_per_s=PACE)
    served = start(folder, Bigram(noise=NOISE))
    yield served
    stop(served)


@pytest.fixture
def anchor(running_anchor: Served) -> Served:
    """The anchor's engine without faults."""
    running_anchor.base.clear()
    return running_anchor.tell()


@pytest.fixture
def candidate(running_candidate: Served) -> Served:
    """The candidate's engine without faults."""
    running_candidate.base.clear()
    return running_candidate.tell()


@pytest.fixture
def quick(anchor: Served, candidate: Served) -> None:
    """Both as fast as they can be: for tests that stream nothing."""
    for served in (anchor, candidate):
        served.base["tokens_per_s"] = 0
        served.tell()


@pytest.fixture
def start_engine() -> Iterator[Start]:
    """Starts engines of one's own, for tests that kill them or need other flags."""
    running: list[Served] = []

    def begin(folder: Path, *flags: str, **bigram: Any) -> Served:
        running.append(start(folder, Bigram(**bigram), *flags))
        return running[-1]

    yield begin
    for served in running:
        stop(served)
