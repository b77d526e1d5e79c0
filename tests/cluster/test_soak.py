"""A hundred evaluations while something is killed every few seconds: a hundred right scores, nothing left."""

from pathlib import Path

import pytest
from cluster.soak import soak


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_hundred_evaluations_end_with_a_hundred_right_scores(tmp_path: Path) -> None:
    report = soak(tmp_path, evaluations=100, every_s=4, minutes=25, seed=1, tell=print)
    assert report.wrong == []
    assert report.right == 100
    assert report.left == []
    assert report.struck.total() >= 20
    assert set(report.struck) >= {"driver", "actor", "engine", "dispatcher"}
