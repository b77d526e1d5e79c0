"""Gates, efficiency E, drift D, score S and its standard error.

    E  = sqrt(memory · speed / max(1, 1 + length_shift))
    D  = 0.79 · 100 · mean_drop + 0.21 · 42.8 · kl
    S  = E · exp(−max(D, 0) / 10),  a tenth of it where a gate fails, 0 where the contract or the engine rules break
    SE(S) = S · sqrt((0.05 / (2 · sqrt(3)))² + (SE(D) / 10)²)

Every constant comes from the rules file. What a submission is judged by arrives as one `Measured`, so that a
record, a rescore under new rules and a test all compute the same thing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lowbit_ray.rules import Rules, ScoreRules, _Described, _Frozen, first_workload
from lowbit_ray.stats import geometric_mean

__all__ = ["DriftWeights", "Gate", "Measured", "Scored", "kl_reason", "score"]

ONE_SIDED_95 = 1.645
"""Normal quantile of the speed gate's one-sided 95 % bound (rules: gate.speed_floor)."""
ROUNDING = 1e-9
"""A value of exactly the limit passes, whatever its last binary digit: 110 tokens for 100 are 10 % more."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the score is computed from."""

    efficiency: dict[str, float]
    """The candidate's figure of each workload, higher is better."""
    anchor_efficiency: dict[str, float]
    peaks_gib: dict[str, float]
    anchor_peaks_gib: dict[str, float]
    length_shift: float
    """Generated tokens over the anchor's, less 1."""
    mean_drop: float
    """Mean accuracy drop, a fraction."""
    mean_drop_se: float | None
    kl: float
    """Nats per token."""
    kl_se: float
    tier: str | None
    """A, B or None."""
    speed_floor: float
    broken: str | None = None
    """Why the contract or the engine rules are broken."""


class Gate(_Described):
    """One gate: how far the measured value is on the right side of its limit."""

    name: str
    passed: bool
    value: float | str | None
    """`accuracy`: the tier; `speed`: the gain less its error; `length`: the shift, a fraction."""
    limit: float | str
    """In the unit of the value."""
    margin: float | None
    """Positive where it passed; None for the tier, which is a letter."""


class Scored(_Frozen):
    """Everything that is derived from a `Measured`."""

    speeds: dict[str, float]
    speed: float
    memories: dict[str, float]
    memory: float
    memory_saved: float
    """1 − candidate's peak / anchor's on the first workload."""
    efficiency_gain: float
    drift: float
    drift_se: float | None
    score: float
    score_se: float | None
    qualified: bool
    gates: tuple[Gate, ...]
    reason: str | None
    """Why the score is cut or 0."""

    def printed(self, digits: int) -> Scored:
        """As records print it: numbers rounded to `digits`, except the drift's error and the gates."""
        single = ("speed", "memory", "memory_saved", "efficiency_gain", "drift", "score", "score_se")
        values = {name: getattr(self, name) for name in single}
        rounded: dict[str, object] = {
            name: None if value is None else round(value, digits) for name, value in values.items()
        }
        for name in ("speeds", "memories"):
            rounded[name] = {key: round(value, digits) for key, value in getattr(self, name).items()}
        return self.model_copy(update=rounded)


@dataclass(frozen=True, slots=True)
class DriftWeights:
    """Points of drift for a unit of accuracy drop and of KL; D and SE(D) both use this one object."""

    drop: float
    kl: float

    @classmethod
    def of(cls, rules: ScoreRules) -> DriftWeights:
        """The rules' weights."""
        return cls(drop=rules.w_acc * 100, kl=rules.w_kl * rules.kl_points)

    def drift(self, mean_drop: float, kl: float) -> float:
        """D in points."""
        return self.drop * mean_drop + self.kl * kl

    def standard_error(self, mean_drop_se: float, kl_se: float) -> float:
        """SE(D) in points, of two independent measurements."""
        return math.hypot(self.drop * mean_drop_se, self.kl * kl_se)


def kl_reason(kl: float, ceiling: float) -> str | None:
    """Why a KL breaks the contract (rules: contract.kl_ceiling_nats), None where it does not."""
    if kl <= ceiling:
        return None
    return f"KL from BF16 is {kl:.4f} nats per token, above the ceiling of {ceiling}"


def score(measured: Measured, rules: Rules) -> Scored:
    """Scores one submission.

    Raises ValueError where a ratio is not finite and positive: such a value is a fault of the measurement, and
    must not become a rank.
    """
    constants = rules.rules
    speeds = _ratios(measured.efficiency, measured.anchor_efficiency)
    memories = _ratios(measured.anchor_peaks_gib, measured.peaks_gib)
    speed, memory = geometric_mean(speeds.values()), geometric_mean(memories.values())
    gain = math.sqrt(memory * speed / max(1.0, 1.0 + measured.length_shift))
    weights = DriftWeights.of(constants)
    drift = weights.drift(measured.mean_drop, measured.kl)
    drift_se = (
        None
        if measured.mean_drop_se is None
        else weights.standard_error(measured.mean_drop_se, measured.kl_se)
    )
    gates = _gates(measured, speed, rules)
    failed = [gate for gate in gates if not gate.passed]
    share = 0.0 if measured.broken else constants.fail_share if failed else 1.0
    value = share * gain * math.exp(-max(drift, 0.0) / constants.scale)
    first = first_workload(measured.peaks_gib)
    return Scored(
        speeds=speeds,
        speed=speed,
        memories=memories,
        memory=memory,
        memory_saved=1 - measured.peaks_gib[first] / measured.anchor_peaks_gib[first],
        efficiency_gain=gain,
        drift=drift,
        drift_se=drift_se,
        score=value,
        score_se=None if drift_se is None else value * _relative_error(drift_se, constants),
        qualified=share == 1.0,
        gates=gates,
        reason=measured.broken or (_words(failed, rules) if failed else None),
    )


def _ratios(over: dict[str, float], under: dict[str, float]) -> dict[str, float]:
    if over.keys() != under.keys():
        raise ValueError(f"candidate and anchor ran different workloads: {sorted(over)} and {sorted(under)}")
    ratios = {name: over[name] / under[name] if under[name] else math.nan for name in over}
    for name, ratio in ratios.items():
        if not (math.isfinite(ratio) and ratio > 0):
            raise ValueError(f"{name}: {over[name]} / {under[name]} is not a finite positive gain")
    return ratios


def _relative_error(drift_se: float, constants: ScoreRules) -> float:
    """SE(S) / S: half the relative error of the mean speed (E is a square root), and that of the drift."""
    return math.hypot(constants.speed_se / (2 * math.sqrt(constants.workloads)), drift_se / constants.scale)


def _gates(measured: Measured, speed: float, rules: Rules) -> tuple[Gate, ...]:
    constants, quality = rules.rules, rules.gate.quality
    allowance = ONE_SIDED_95 * constants.speed_se / math.sqrt(constants.workloads)
    margin = speed - allowance - measured.speed_floor
    length_margin = constants.length_limit - abs(measured.length_shift)
    tier_passed = measured.tier is not None and measured.tier <= quality.required_tier
    return (
        Gate(
            name="accuracy", passed=tier_passed, value=measured.tier, limit=quality.required_tier, margin=None
        ),
        Gate(
            name="speed",
            passed=margin >= -ROUNDING,
            value=speed - allowance,
            limit=measured.speed_floor,
            margin=margin,
        ),
        Gate(
            name="length",
            passed=length_margin >= -ROUNDING,
            value=measured.length_shift,
            limit=constants.length_limit,
            margin=length_margin,
        ),
    )


def _words(failed: list[Gate], rules: Rules) -> str:
    quality = rules.gate.quality
    points = 100 * {"A": quality.margins.a, "B": quality.margins.b}[quality.required_tier]
    tier = next((gate.value for gate in failed if gate.name == "accuracy"), None) or "none"
    parts = {
        "accuracy": f"accuracy tier {tier} where {{0.limit}} is required (a domain dropped by more than {points:g} "
        "points, or was not answered wholly)",
        "speed": "speed less its error {0.value:.4f} under the floor {0.limit}",
        "length": "generated length {0.value:+.1%} beyond ±{0.limit:.0%}",
    }
    return "gate failed: " + "; ".join(parts[gate.name].format(gate) for gate in failed)
