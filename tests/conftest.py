"""What all tests share: the folder of fixtures, and the fakes as a package beside them."""

import os
import sys
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))

# before Ray is first imported, which reads them
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# a busy machine is no failure
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")


LONGEST = (
    "cluster/test_soak.py",
    "vllm/test_llama_cpp.py",
    "cluster/test_faults.py",
    "cluster/test_dispatch.py",
    "vllm/test_demo.py",
    "test_evaluate.py",
    "redteam/test_cheats.py",
    "redteam/test_honest.py",
    "redteam/test_canaries.py",
    "redteam/test_prison.py",
    "jobs/test_jobs.py",
    "cluster/test_elastic.py",
    "test_noise_floor.py",
    "stages/test_repeats.py",
    "doctor/test_doctor.py",
    "service/test_served.py",
    "engines/test_pod.py",
)
"""Files that take minutes, the longest first: one that is begun last is waited for while other workers are idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, each whole, and leaves the others in their order."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return Path(__file__).parent / "fixtures"
