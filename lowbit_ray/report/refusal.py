"""Why a submission has no score or did not qualify, of what the service answers: for a terminal without the record's
own modules."""

from __future__ import annotations

from typing import Any

from lowbit_ray.score import Gate

__all__ = ["gate_words", "refusal"]

FINDINGS = 10
"""Of a broken contract that are printed; --json has all."""


def gate_words(gate: Gate) -> str:
    """Passed or failed, and by how much."""
    verdict = "passed" if gate.passed else "FAILED"
    if gate.name == "accuracy":
        return f"{verdict}: tier {gate.value or 'none'}, {gate.limit} is required"
    margin = f"margin {gate.margin:+.4f}" if gate.margin is not None else ""
    if gate.name == "speed":
        return f"{verdict}: gain less its error {gate.value:.4f}, floor {gate.limit:g}, {margin}"
    return f"{verdict}: generated length {gate.value:+.2%}, limit ±{gate.limit:.0%}, {margin}"


def refusal(view: dict[str, Any]) -> list[tuple[str, str]]:
    """What is wrong, what it means and what to change, each with a title; empty where a submission qualified."""
    result = view["result"] or {}
    reason = result.get("reason") or view.get("error")
    lines = [("reason", reason)] if reason else []
    gates = [Gate.model_validate(gate) for gate in result.get("gates", ())]
    lines += [(f"gate: {gate.name}", gate_words(gate)) for gate in gates if not gate.passed]
    findings = view.get("findings", ()) if view["status"] == "rejected" else ()
    lines += [("finding", finding) for finding in findings[:FINDINGS]]
    if len(findings) > FINDINGS:
        lines.append(("", f"and {len(findings) - FINDINGS} more: --json has all"))
    for advice in view.get("advice", ()):
        lines += [("what it means", advice["meaning"]), ("what to change", advice["change"])]
    return lines
