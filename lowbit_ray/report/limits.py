"""Every limit that a record was held against, with how far it is on the right side.

Two kinds. *Gates*: where one fails a tenth of the score is left. *Rules* (contract and engine rules): where one is
broken the score is 0. The score's own gates are taken from the record as they were judged; the rules' limits come
from the rules file and the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lowbit_ray.conduct import ConductLimits
from lowbit_ray.measure.audit import Audit
from lowbit_ray.records import Result
from lowbit_ray.report.lines import NAMES, in_order
from lowbit_ray.rules import Rules
from lowbit_ray.score import Gate
from lowbit_ray.tasks import Task

__all__ = ["Limit", "audited", "gap_limit", "limits_of"]


@dataclass(frozen=True, slots=True)
class Limit:
    """One value beside its limit."""

    kind: Literal["gate", "rule"]
    name: str
    passed: bool
    value: str
    limit: str
    margin: str
    """How far from the limit, positive on the right side; empty where there is no number."""
    fill: float | None = None
    """Percent of the bar that the value fills; None where there is no bar."""
    mark: float = 0.0
    """Percent of the bar where the limit stands."""


def limits_of(result: Result, rules: Rules, task: Task | None) -> list[Limit]:
    """Gates first, then the rules; `task` is None where its file is not known here any more."""
    found = [_gate(gate) for gate in result.gates]
    ceiling = rules.rules.kl_ceiling
    found.append(_at_most("rule", "KL from BF16, nats per token", result.kl.kl, ceiling))
    limit = gap_limit(result, rules, task)
    for name, audit in audited(result):
        found += _audit(NAMES.get(name, name), audit, limit, rules)
    for name, run in in_order(result.engine.budget):
        found.append(
            Limit(
                kind="rule",
                name=f"Hard cap, {NAMES.get(name.partition('@')[0], name)}",
                passed=run.healthy,
                value="does not say"
                if run.running is None
                else f"{run.running:g} at once in {run.cap_gib:.2f} GiB",
                limit="" if run.full_running is None else f"{run.full_running:g} at once in the whole device",
                margin="",
            )
        )
    found += _conduct(result, task.conduct if task else ConductLimits())
    if result.engine.startup is not None:
        offload = result.engine.startup.offload
        found.append(
            Limit(
                kind="rule",
                name="Weights or KV in host memory",
                passed=not offload,
                value="; ".join(map(str, offload)) or "none",
                limit="none",
                margin="",
            )
        )
    return found


def audited(result: Result) -> list[tuple[str, Audit]]:
    """The audits that were made, in the rules' order of workloads."""
    return [(name, audit) for name, audit in in_order(result.timed_audit) if isinstance(audit, Audit)]


def gap_limit(result: Result, rules: Rules, task: Task | None) -> float | None:
    """The largest median gap of the audit, nats per token."""
    if task is not None:
        return task.gap_limit(rules)
    return rules.engine.timed_output_audit.median_gap_limit_nats.get(result.task_id)


def _gate(gate: Gate) -> Limit:
    if gate.name == "accuracy" or not isinstance(gate.value, float | int):
        return Limit(
            kind="gate",
            name="Accuracy" if gate.name == "accuracy" else gate.name.capitalize(),
            passed=gate.passed,
            value=f"tier {gate.value or 'none'}" if gate.name == "accuracy" else str(gate.value),
            limit=f"tier {gate.limit}" if gate.name == "accuracy" else str(gate.limit),
            margin="",
        )
    limit = float(gate.limit)
    if gate.name == "length":
        value = abs(gate.value)
        fill, mark = _bar(value, limit)
        words = f"{gate.value:+.2%}", f"within ±{limit:.0%}", f"{limit - value:+.2%}"
        return Limit("gate", "Generated length", gate.passed, *words, fill, mark)
    name = "Speed gain less its error" if gate.name == "speed" else gate.name.capitalize()
    fill, mark = _bar(float(gate.value), limit)
    margin = "" if gate.margin is None else f"{gate.margin:+.4f}"
    return Limit(
        "gate", name, gate.passed, f"{gate.value:.4f}", f"at least {limit:g}", margin, fill=fill, mark=mark
    )


def _audit(name: str, audit: Audit, gap: float | None, rules: Rules) -> Iterator[Limit]:
    limits = rules.engine.timed_output_audit
    if gap is not None and audit.gap_median is not None:
        yield _at_most("rule", f"Audit, {name}: median gap, nats per token", audit.gap_median, gap)
    yield _at_least(
        "rule", f"Audit, {name}: length against BF16's", audit.length_ratio, limits.min_length_ratio
    )
    share = audit.empty_alone / audit.picked if audit.picked else 0.0
    yield _at_most("rule", f"Audit, {name}: share of empty outputs", share, limits.max_empty_share)
    padded = audit.repeated_eos_alone / audit.picked if audit.picked else 0.0
    yield _at_most("rule", f"Audit, {name}: share of padded outputs", padded, limits.max_empty_share)


def _conduct(result: Result, limits: ConductLimits) -> Iterator[Limit]:
    """How the server behaved when it was asked again."""
    conduct = result.engine.conduct
    if conduct is None:
        return
    words = "Time per token of a prompt asked before, against a fresh one"
    yield _at_least("rule", words, conduct.replay.tpot_ratio, limits.replay_ratio)
    if conduct.later_replay is not None:
        yield _at_least(
            "rule", f"{words}, later server", conduct.later_replay.tpot_ratio, limits.replay_ratio
        )
    said = conduct.consistency
    figures = [
        (f"Probed against timed, {NAMES.get(name, name)}: nats per token", gap, limits.self_gap_nats)
        for name, gap in in_order(said.self_gap)
    ]
    figures += [
        ("Greedy tokens that are not the likeliest of their list", said.chosen_share, limits.chosen_share),
        ("Log-probabilities asked twice, nats apart", said.asked_again, limits.shift_nats),
        ("KL of what it says generating and scoring, nats", said.forced_kl, limits.forced_kl),
    ]
    for name, value, limit in figures:
        if value is not None:
            yield _at_most("rule", name, value, limit)


def _at_least(kind: Literal["gate", "rule"], name: str, value: float, limit: float) -> Limit:
    fill, mark = _bar(value, limit)
    return Limit(
        kind=kind,
        name=name,
        passed=value >= limit,
        value=f"{value:.3f}",
        limit=f"at least {limit:g}",
        margin=f"{value - limit:+.3f}",
        fill=fill,
        mark=mark,
    )


def _at_most(kind: Literal["gate", "rule"], name: str, value: float, limit: float) -> Limit:
    fill, mark = _bar(value, limit)
    return Limit(
        kind=kind,
        name=name,
        passed=value <= limit,
        value=f"{value:.4f}",
        limit=f"at most {limit:g}",
        margin=f"{limit - value:+.4f}",
        fill=fill,
        mark=mark,
    )


def _bar(value: float, limit: float) -> tuple[float, float]:
    """Percent of a bar for a value and its limit, on a scale from 0 to a little beyond the larger."""
    whole = 1.15 * max(value, limit) or 1.0
    return 100 * max(value, 0.0) / whole, 100 * limit / whole
