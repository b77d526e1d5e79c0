"""Engines that are unusual and honest: each gets its score, and no rule is seen broken."""

from __future__ import annotations

from typing import Any

import pytest
from red import Submit

from lowbit_ray.conduct import ConductLimits

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize(
    ("name", "fake"),
    [
        ("Plain", {"faults": {"chunk_tokens": 3, "drop_keepalive": True, "empty_first": True}}),
        ("NotVllm", {}),
        ("NoMinTokens", {"start_s": 3.0}),
        ("OddChunks", {}),
        ("SeveralProcesses", {}),
        ("Plain", {"faults": {"no_prompt_logprobs": True, "no_echo": True}}),
    ],
    ids=[
        "several tokens a chunk, an empty one first, connections dropped",
        "no accounts and no metrics",
        "no min_tokens, and a slow start",
        "chunks cut anywhere",
        "several processes",
        "log-probabilities of what it generates alone",
    ],
)
def test_it_gets_its_score(submit: Submit, name: str, fake: dict[str, Any]) -> None:
    record = submit("honest.py", name, **fake)
    assert record.status == "done", record.error
    assert record.fault is None
    assert record.result is not None
    assert record.result.admitted
    assert record.result.score > 0
    assert record.isolation is not None
    assert record.isolation.kind == "bubblewrap"
    conduct = record.result.engine.conduct
    assert conduct is not None
    assert conduct.replay.tpot_ratio >= ConductLimits().replay_ratio
    assert all(gap == 0.0 for gap in conduct.consistency.self_gap.values() if gap is not None)
    assert conduct.consistency.chosen_share == 0.0
