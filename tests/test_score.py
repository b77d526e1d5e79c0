"""The golden numbers of the arena's published score, from the example record's raw fields, and what the gates do."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowbit_ray.rules import load_rules
from lowbit_ray.score import DriftWeights, Measured, Scored, score

RULES = load_rules()


@pytest.fixture(scope="module")
def example(fixtures: Path) -> Measured:
    result = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())["result"]
    order = ("serve", "interactive", "long_context")
    return Measured(
        efficiency={name: result["efficiency"][name] for name in order},
        anchor_efficiency={name: result["anchor_efficiency"][name] for name in order},
        peaks_gib={name: result["peak_memory"][name]["peak_gib"] for name in order},
        anchor_peaks_gib={name: result["anchor_peak_memory"][name]["peak_gib"] for name in order},
        length_shift=result["length_shift"],
        mean_drop=0.0011017,  # printed 0.0011
        mean_drop_se=0.00302,
        kl=result["kl"]["kl"],
        kl_se=result["kl"]["kl_se"],
        tier=result["quality"]["tier"],
        speed_floor=0.95,
    )


def anchor_itself() -> Measured:
    same = {"serve": 3.0, "interactive": 2.0, "long_context": 1.0}
    return Measured(
        efficiency=same,
        anchor_efficiency=same,
        peaks_gib=same,
        anchor_peaks_gib=same,
        length_shift=0.0,
        mean_drop=0.0,
        mean_drop_se=0.0,
        kl=0.0,
        kl_se=0.0,
        tier="A",
        speed_floor=0.95,
    )


def test_the_golden_gains_are_reproduced(example: Measured) -> None:
    scored = score(example, RULES)
    assert {name: round(value, 4) for name, value in scored.speeds.items()} == {
        "serve": 1.4490,
        "interactive": 1.2964,
        "long_context": 1.3804,
    }
    assert [round(value, 4) for value in scored.memories.values()] == [2.0074, 2.0074, 2.0080]
    assert round(scored.speed, 4) == 1.3738
    assert round(scored.memory, 4) == 2.0076
    assert round(scored.memory_saved, 4) == 0.5018


def test_the_golden_score_is_reproduced(example: Measured) -> None:
    scored = score(example, RULES)
    assert round(scored.efficiency_gain, 4) == 1.6472
    assert round(scored.drift, 4) == 0.1961
    # to the digit where E and D are rounded first, as published; from unrounded ones S is 1.61525
    assert round(round(scored.efficiency_gain, 4) * math.exp(-round(scored.drift, 4) / 10), 4) == 1.6152
    assert scored.score == pytest.approx(1.6152, abs=6e-5)
    assert scored.score_se is not None
    assert round(scored.score_se, 4) == 0.0451
    assert scored.qualified
    assert scored.reason is None


def test_the_anchor_itself_scores_one_and_passes() -> None:
    scored = score(anchor_itself(), RULES)
    assert scored.score == 1.0
    assert scored.qualified
    speed = next(gate for gate in scored.gates if gate.name == "speed")
    assert speed.margin == pytest.approx(1 - 1.645 * 0.05 / math.sqrt(3) - 0.95)


@pytest.mark.parametrize(
    "failing",
    [{"tier": None}, {"length_shift": 0.1001}, {"length_shift": -0.1001}, {"speed_floor": 0.9526}],
    ids=["tier", "longer", "shorter", "slower"],
)
def test_a_failed_gate_leaves_a_tenth(failing: dict[str, float]) -> None:
    passing = replace(anchor_itself(), length_shift=failing.get("length_shift", 0.0) and 0.0999)
    failed = replace(anchor_itself(), **failing)  # type: ignore[arg-type]
    scored = score(failed, RULES)
    assert not scored.qualified
    assert scored.reason is not None
    assert scored.reason.startswith("gate failed")
    assert scored.score == pytest.approx(0.1 * scored.efficiency_gain)
    assert score(passing, RULES).qualified


@pytest.mark.parametrize(("candidate", "anchor"), [(110, 100), (90, 100), (1100, 1000), (33, 30), (63, 70)])
def test_exactly_ten_percent_is_within_ten_percent(candidate: int, anchor: int) -> None:
    """110 / 100 − 1 is 0.10000000000000009 in binary."""
    scored = score(replace(anchor_itself(), length_shift=candidate / anchor - 1), RULES)
    assert scored.qualified, scored.reason
    assert not score(
        replace(anchor_itself(), length_shift=(candidate / anchor - 1) * 1.0001), RULES
    ).qualified


def test_a_failed_tier_is_said_in_points() -> None:
    reason = score(replace(anchor_itself(), tier=None), RULES).reason
    assert reason == (
        "gate failed: accuracy tier none where B is required "
        "(a domain dropped by more than 5 points, or was not answered wholly)"
    )


def test_a_broken_contract_scores_nothing_and_says_why() -> None:
    scored = score(replace(anchor_itself(), broken="config.json: hidden_size"), RULES)
    assert scored.score == 0.0
    assert scored.score_se == 0.0
    assert scored.reason == "config.json: hidden_size"


def test_better_than_the_anchor_earns_no_drift_bonus() -> None:
    assert score(replace(anchor_itself(), mean_drop=-0.05), RULES).score == 1.0


def test_drift_and_its_error_share_their_weights() -> None:
    weights = DriftWeights.of(RULES.rules)
    assert weights.drift(0.01, 0.0) == weights.standard_error(0.01, 0.0)
    assert weights.drift(0.0, 0.01) == weights.standard_error(0.0, 0.01)


@given(st.floats(1.0001, 4.0))
def test_more_of_a_good_thing_never_scores_less(factor: float) -> None:
    base = anchor_itself()
    faster = replace(base, efficiency={name: value * factor for name, value in base.efficiency.items()})
    smaller = replace(base, peaks_gib={name: value / factor for name, value in base.peaks_gib.items()})
    before: Scored = score(base, RULES)
    assert score(faster, RULES).score > before.score
    assert score(smaller, RULES).score > before.score
    assert score(replace(base, kl=factor / 100), RULES).score < before.score


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -1.0])
def test_a_ratio_that_is_no_gain_is_refused(value: float) -> None:
    base = anchor_itself()
    with pytest.raises(ValueError, match="serve"):
        score(replace(base, efficiency={**base.efficiency, "serve": value}), RULES)


def test_an_anchor_that_measured_nothing_is_refused() -> None:
    base = anchor_itself()
    with pytest.raises(ValueError, match="serve"):
        score(replace(base, anchor_efficiency={**base.efficiency, "serve": 0.0}), RULES)
