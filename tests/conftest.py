"""What all tests share: the folder of fixtures, and the fakes as a package beside them."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# before Ray is first imported, which reads them
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return Path(__file__).parent / "fixtures"
