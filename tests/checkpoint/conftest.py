"""What the checkpoint tests share: the rules, and one source of two layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_checkpoints import write_source

from lowbit_ray.rules import Rules, load_rules


@pytest.fixture(scope="session")
def rules() -> Rules:
    return load_rules()


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("source"))
