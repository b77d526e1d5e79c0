"""The public record of a submission: what was measured, where, with which releases, and what follows from it.

Its keys are those of the arena's records, none renamed; ours come beside them. Derived numbers are printed to
four digits like the arena's, measured ones in full, so that `recheck` can compute the former from the latter.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from lowbit_ray.checkpoint.executed import ExecutedPrecision
from lowbit_ray.checkpoint.precision import Precision
from lowbit_ray.conduct import Fault
from lowbit_ray.engines.accounts import Startup
from lowbit_ray.engines.footprint import Footprint
from lowbit_ray.engines.host import Host
from lowbit_ray.engines.isolation import Isolation
from lowbit_ray.errors import LedgerError
from lowbit_ray.measure.audit import Audit
from lowbit_ray.measure.budget import BudgetRun
from lowbit_ray.measure.consistency import Consistency
from lowbit_ray.measure.kl import KLResult
from lowbit_ray.measure.memory import PeakMemory
from lowbit_ray.measure.noise_floor import RepeatedFloor
from lowbit_ray.measure.perplexity import PerplexityResult
from lowbit_ray.measure.replay import Replay
from lowbit_ray.measure.workload import WorkloadRun
from lowbit_ray.migration import SCHEMA, migrate
from lowbit_ray.rules import _Described
from lowbit_ray.score import Gate

__all__ = [
    "Conduct",
    "EnginePart",
    "KLPart",
    "MissingAudit",
    "NoiseFloor",
    "Record",
    "Result",
    "Solution",
    "StageStatus",
    "StageTime",
    "parse_record",
]


class MissingAudit(_Described):
    """A scenario of the arena's records that is no workload of the rules any more."""

    status: Literal["missing"] = "missing"


class KLPart(KLResult):
    """The KL probe, with the perplexities beside it."""

    ppl: dict[str, PerplexityResult]


class NoiseFloor(_Described):
    """The anchor against itself, asked twice."""

    kl: float
    """Nats per token: what the estimator reads where the truth is 0."""
    kl_se: float
    """Standard error over sequences."""
    repeated: RepeatedFloor | None = None
    """Whole evaluations of the anchor against itself; None where none was made on this kind of device."""


class Baseline(_Described):
    """The anchor's start, beside the candidate's."""

    startup: Startup | None
    start_seconds: float
    """From the start of the process to its first answer."""


class Conduct(_Described):
    """What the engine rules were judged by beside memory and audit; their limits stand in conduct.py."""

    replay: Replay
    """Timed prompts asked again, of the server that was timed."""
    later_replay: Replay | None
    """The same of the last server."""
    consistency: Consistency
    texts_disagree: float | None
    """Largest share, over workloads, of timed outputs whose text is not that of their ids."""
    at_start: Footprint | None
    """The timed server's processes before anything was timed."""
    at_end: Footprint | None
    """And after all of it."""
    anchor: Footprint | None
    """BF16's server on the same pod, after it was timed."""


class EnginePart(_Described):
    """The candidate's server."""

    audit: dict[str, Audit | MissingAudit]
    budget: dict[str, BudgetRun]
    """By `workload@factor`."""
    hard_cap: bool
    """Whether its quality was measured under the cap of its largest checked peak."""
    startup: Startup | None
    """None for an engine that keeps no accounts of vLLM's kind."""
    start_seconds: float
    stored_gib: float
    """Bytes of the checkpoint's tensors."""
    conduct: Conduct | None = None


class QualityPart(_Described):
    tier: Literal["A", "B"] | None
    valid_domains: int


class Result(_Described):
    """The verdict, and everything that it was computed from."""

    admitted: bool
    """Whether contract and engine rules are kept."""
    anchor_efficiency: dict[str, float]
    anchor_peak_memory: dict[str, PeakMemory]
    bf16_peak_gib: float
    drift: float
    """D, points."""
    efficiency: dict[str, float]
    efficiency_gain: float
    """E; 1 is the anchor's."""
    engine: EnginePart
    gpu_hours: float
    kl: KLPart
    length_shift: float
    """Candidate's generated tokens over the anchor's, less 1."""
    mean_drop: float
    """Anchor's accuracy less the candidate's, mean over valid domains; a fraction."""
    memories: dict[str, float]
    memory: float
    """Geometric mean over workloads of the anchor's peak over the candidate's."""
    memory_saved: float
    """1 less the candidate's peak over the anchor's, on the first workload."""
    metric: Literal["lowbit_score"] = "lowbit_score"
    peak_gib: float
    peak_memory: dict[str, PeakMemory]
    precision: Precision
    """Read from bytes and config."""
    qualified: bool
    quality: QualityPart
    reason: str | None
    score: float
    """S, the LowBScore."""
    score_se: float | None
    """Its standard error by the rules' formula."""
    speed: float
    """Geometric mean over workloads of the candidate's rate over the anchor's."""
    speed_serve: float
    """The gain of the first workload alone."""
    speeds: dict[str, float]
    task_id: str
    timed_audit: dict[str, Audit | MissingAudit]

    anchor: Baseline
    anchor_runs: dict[str, tuple[WorkloadRun, ...]]
    """Each timed run of the anchor, by workload."""
    accuracy_items: int
    drift_se: float | None
    """Points."""
    executed: ExecutedPrecision | None
    """What the engine said that it computes with; None where it did not say."""
    foreign_cpu: dict[str, float]
    """Largest share of the host's CPUs that neither the engine nor its client used while a workload was timed, of
    both sides: on a busy host speeds mean nothing."""
    gates: tuple[Gate, ...]
    mean_drop_se: float | None
    """Over paired items; a fraction."""
    noise_floor: NoiseFloor
    runs: dict[str, tuple[WorkloadRun, ...]]
    """Each timed run of the candidate."""
    speed_floor: float
    """Least speed gain, less its error."""
    speeds_se: dict[str, float | None]
    """Measured relative standard error of each speed gain, from repeats of both sides; None with one repeat."""
    speed_se: float | None = None
    """That of their geometric mean; the rules' score takes 5 % a workload instead, whatever is measured."""


class Solution(_Described):
    """What was handed in, in the arena's words."""

    checkpoint: str
    declared_precision: bool
    """Whether the participant declared a precision."""
    detected_precision: str | None
    method: str
    precision: str | None
    """The declared precision where there is one, else the detected."""


class StageStatus(_Described):
    name: Literal["build", "contract", "quality", "efficiency", "score"]
    status: Literal["waiting", "done", "failed"]


class StageTime(_Described):
    """How long one step took, for the time line."""

    name: str
    started_at: datetime
    seconds: float
    """Wall time."""
    pod_seconds: float
    """Seconds of it during which the pod was held."""
    busy_seconds: float = 0.0
    """Of those, seconds in which an engine was answering what it was asked."""


class Record(_Described):
    """One submission, finished."""

    agent: str | None
    created_at: datetime
    error: str | None
    """Why there is no score; None where there is one."""
    id: str
    participant: str
    partition: Literal["participant", "reference"]
    result: Result | None
    runner: Literal["ray"] = "ray"
    solution: Solution
    split: Literal["dev", "test"]
    stages: tuple[StageStatus, ...]
    status: Literal["done", "rejected", "failed"]
    task_id: str
    track: Literal["checkpoint", "engine"]
    updated_at: datetime

    fault: Fault | None = None
    """The parts of `error`: which rule, what was seen, the limit."""
    charged_hours: float = 0.0
    """GPU-hours that count on the board: all attempts, 0 where the fault was ours."""
    findings: tuple[str, ...] = ()
    """What the contract found, in words."""
    host: Host | None = None
    """Where it was measured."""
    isolation: Isolation | None = None
    """What the participant's engine was shut in by; None on the checkpoint track, or where it was never timed."""
    releases: dict[str, str] = Field(default_factory=dict)
    rules_version: str
    schema_version: int = SCHEMA
    time_line: tuple[StageTime, ...] = ()

    @field_validator("created_at", "updated_at")
    @classmethod
    def _to_the_second(cls, at: datetime) -> datetime:
        """As the arena's records have it; a submission's own time is finer, for the order of arrival."""
        return at.replace(microsecond=0)

    def to_json(self) -> str:
        """Indented JSON with sorted keys, as it is published."""
        return _sorted_json(self.model_dump(mode="json"))


def parse_record(data: bytes | str) -> Record:
    """A stored record, whichever version it has; LedgerError where it is none."""
    try:
        return Record.model_validate(migrate(json.loads(data)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where, found = ".".join(map(str, first["loc"])), first["msg"]
    except (ValueError, AttributeError) as error:
        where, found = "record", str(error)[:200]
    raise LedgerError(
        "a stored record cannot be read",
        where=where,
        found=found,
        remedy="A later release made it, or it was changed by hand.",
    )


def _sorted_json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
