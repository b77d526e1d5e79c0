"""`lowbit check`: everything that can be said of a candidate without a GPU, in one report."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lowbit_ray.checkpoint.contract import Contract, Track, judge
from lowbit_ray.checkpoint.findings import Finding, show
from lowbit_ray.checkpoint.memory import ExpectedMemory, expect_memory
from lowbit_ray.checkpoint.precision import Precision, parse_label
from lowbit_ray.checkpoint.reading import read_both, read_checkpoint
from lowbit_ray.checkpoint.servable import Servable, servable
from lowbit_ray.rules import Rules
from lowbit_ray.tasks import Task

__all__ = ["CheckReport", "check"]


class CheckReport(BaseModel):
    """What `lowbit check --json` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    track: Track
    kept: bool
    """Whether the contract is kept."""
    reason: str | None
    """Why it is not, in one line."""
    declared: str | None
    """The participant's label."""
    agrees: bool | None
    """Whether the declared bits are the read ones; None when nothing was declared or read."""
    contract: Contract
    memory: ExpectedMemory | None
    """None when the precision or the model's shape is not known."""
    servable: tuple[Servable, ...]
    """A verdict for each known vLLM release."""

    @property
    def precision(self) -> Precision | None:
        return self.contract.precision

    @property
    def exit_code(self) -> int:
        """0 kept, 1 broken (2, could not be read, is an exception)."""
        return 0 if self.kept else 1


def check(
    source: Path,
    candidate: Path,
    *,
    task: Task,
    rules: Rules,
    declared: str | None = None,
    track: Track = "checkpoint",
) -> CheckReport:
    """Holds the folder `candidate` against the folder `source`.

    Raises CheckpointError when either cannot be read as a checkpoint.
    """
    anchor, ours = read_checkpoint(source), read_checkpoint(candidate)
    reading = read_both(anchor, ours)
    contract = judge(anchor, ours, reading, rules, track)
    precision = contract.precision
    agrees = _agrees(declared, precision)
    if agrees is False and declared is not None and precision is not None:
        finding = _misdeclared(declared, precision)
        contract = contract.model_copy(update={"findings": (*contract.findings, finding)})
    memory = None
    if precision is not None:
        memory = expect_memory((anchor.headers, anchor.config), ours.headers, precision.kv, task, rules)
    return CheckReport(
        task_id=task.id,
        track=track,
        kept=contract.kept,
        reason=contract.reason,
        declared=declared,
        agrees=agrees,
        contract=contract,
        memory=memory,
        servable=servable(reading.plan) if precision is not None else (),
    )


def _agrees(declared: str | None, precision: Precision | None) -> bool | None:
    if declared is None or precision is None:
        return None
    claim = parse_label(declared)
    return claim is not None and (claim.weights, claim.activations, claim.kv) == (
        precision.weights,
        precision.activations,
        precision.kv,
    )


def _misdeclared(declared: str, precision: Precision) -> Finding:
    return Finding(
        file="",
        field="precision",
        found=precision.label,
        expected=f"{show(declared, 40)} as declared",
        summary="the checkpoint does not read as it was declared",
        rule="precision",
        breaks=False,
    )
