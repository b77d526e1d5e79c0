"""Evaluations while something is killed every few seconds: as many right scores, nothing left.

As many of a hundred as begin within four and a half minutes: an evaluation on the fake engine is sixteen starts of
Python, six seconds of CPU, and what is killed costs about as much again. Two cores that do little else finish forty
in five minutes, those of a busy machine fewer. `python tests/cluster/soak.py` runs all hundred.
"""

from pathlib import Path

import pytest
from cluster.soak import soak

EVERY_S, BEGIN_S = 4.0, 270.0
LEAST = 8


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_evaluation_ends_with_the_right_score_whatever_is_killed(tmp_path: Path) -> None:
    report = soak(tmp_path, evaluations=100, every_s=EVERY_S, begin_s=BEGIN_S, minutes=13, seed=1, tell=print)
    assert report.wrong == []
    assert report.right == report.evaluations >= LEAST
    assert report.left == []
    assert report.struck.total() >= LEAST // 2
