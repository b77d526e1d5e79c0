"""Evaluations while something is killed every few seconds: as many right scores, nothing left.

Eight here, as two cores take some twelve seconds for each undisturbed; `python tests/cluster/soak.py` runs more.
"""

from pathlib import Path

import pytest
from cluster.soak import soak

EVALUATIONS = 8


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_evaluation_ends_with_the_right_score_whatever_is_killed(tmp_path: Path) -> None:
    report = soak(tmp_path, evaluations=EVALUATIONS, every_s=8, minutes=13, seed=1, tell=print)
    assert report.wrong == []
    assert report.right == EVALUATIONS
    assert report.left == []
    assert report.struck.total() >= 4
