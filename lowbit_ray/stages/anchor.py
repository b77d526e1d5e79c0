"""The anchor's turn on the pod: timed on the same workloads, then it audits, then it gives its reusable part."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

from lowbit_ray.conduct import Breach
from lowbit_ray.measure.audit import Audit, AuditLimits, audit_outputs, passes
from lowbit_ray.measure.trust import withheld_tokens
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.efficiency import TimedSide, time_side
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.questions import inquire
from lowbit_ray.stages.serving import Server

__all__ = ["AnchorSide", "audit_breaches", "end_tokens", "time_and_audit", "withheld_breaches"]

AUDIT_CONCURRENCY = 8
"""Long texts are scored whole: few in flight keep the memory that their log-probabilities take small."""


class AnchorSide(_Frozen):
    """The anchor's timed runs, and its audit of the candidate's."""

    timed: TimedSide
    audits: dict[str, Audit]


def time_and_audit(
    evaluation: Evaluation, server: Server, hidden: Hidden, candidate: TimedSide
) -> AnchorSide:
    """Times the running anchor, then has it score what both said."""
    timed = time_side(evaluation, server, hidden)
    eos_ids = end_tokens(hidden.source)
    task, rules = evaluation.task, evaluation.rules.engine.timed_output_audit
    audits: dict[str, Audit] = {}
    for name in timed.runs:
        question = inquire(
            audit_outputs,
            candidate.outputs[name],
            timed.outputs[name],
            tokenizer=hidden.tokenizer,
            eos_ids=eos_ids,
            samples=task.audit.samples or rules.samples_per_scenario,
            seed=evaluation.seed("audit", name),
            run=f"{name}-r0.json",
            concurrency=min(AUDIT_CONCURRENCY, task.kl.max_concurrency),
            timeout_s=task.engine.request_timeout_s,
        )
        audits[name] = server.ask(question, f"auditing the timed outputs of {name}")
    return AnchorSide(timed=timed, audits=audits)


def audit_breaches(evaluation: Evaluation, audits: dict[str, Audit]) -> Iterator[Breach]:
    """Workloads whose timed outputs BF16 does not believe."""
    rules = evaluation.rules.engine.timed_output_audit
    limits = AuditLimits(
        median_gap=evaluation.task.gap_limit(evaluation.rules),
        min_length_ratio=rules.min_length_ratio,
        max_empty_share=rules.max_empty_share,
    )
    for name, audit in audits.items():
        reason = passes(audit, limits)
        if reason is not None:
            yield Breach(
                rule="audit",
                where=f"workload {name}",
                seen=reason,
                limit=f"median gap ≤ {limits.median_gap} nats, length ≥ {limits.min_length_ratio:.0%}, "
                f"empty or padded ≤ {limits.max_empty_share:.0%}",
            )


def withheld_breaches(evaluation: Evaluation, candidate: TimedSide, anchor: TimedSide) -> Iterator[Breach]:
    """Workloads whose gain in time per token is not believed: first tokens may have been held back."""
    for name, workload in evaluation.task.timed_workloads(evaluation.rules).items():
        if workload.metric == "median_tpot_ms":
            limit = evaluation.task.conduct.withheld_ratio
            reason = withheld_tokens(candidate.runs[name][0], anchor.runs[name][0], limit)
            if reason is not None:
                yield Breach(
                    rule="withheld tokens",
                    where=f"workload {name}",
                    seen=reason,
                    limit=f"time per token ≤ {limit} times better than whole answers",
                )


def end_tokens(source: Path) -> Collection[int]:
    """End-of-sequence ids of the source: of generation_config.json and config.json together."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        path = source / name
        if not path.is_file():
            continue
        config = json.loads(path.read_text())
        ids = config.get("eos_token_id", config.get("text_config", {}).get("eos_token_id"))
        found.update([ids] if isinstance(ids, int) else ids or [])
    return frozenset(found)
