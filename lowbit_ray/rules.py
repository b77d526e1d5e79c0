"""The arena's published rules as a frozen model.

`rules/v23.json` is the authority; its keys are what `GET /api/rules` answers. Every number that scoring uses
is read from here, so that a new rules file over old measurements is a rescore, not a code change.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lowbit_ray.errors import ConfigError

__all__ = ["DEFAULT_RULES", "WORKLOAD_NAMES", "Rules", "Workload", "first_workload", "load_rules"]

DEFAULT_RULES = Path(__file__).parent / "rules" / "v23.json"
WORKLOAD_NAMES = ("serve", "interactive", "long_context")

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Described(_Frozen):
    """What the API shows: its schema has each field's own words, units among them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ScoreRules(_Frozen):
    """Constants of the score and its gates."""

    version: str
    scale: Positive
    """Points of drift over which the score falls by a factor e."""
    w_acc: Share
    """Weight in the drift of the accuracy drop (in points)."""
    w_kl: Share
    """Weight in the drift of the KL divergence (times `kl_points`)."""
    kl_points: Positive
    """Points of drift of one nat per token of KL."""
    fail_share: Share
    """Share of the score that remains when a gate fails."""
    speed_floor: Positive
    """Least speed gain, less its error, unless the task has its own."""
    speed_se: Positive
    """Relative standard error of one workload's speed gain, as the rules declare it."""
    length_limit: Positive
    """Largest |length_shift|."""
    kl_ceiling: Positive
    """Largest KL in nats per token; above it the contract is broken."""
    workloads: Annotated[int, Field(ge=1)]
    """How many workloads the speed gain is a geometric mean of."""
    cost_scale: Positive
    """GPU-hours over which a board score falls by a factor e."""
    repeats: Annotated[int, Field(ge=1, le=20)] = 1
    """Timed runs of each workload a side, interleaved with nothing, on one server."""


class VllmRelease(_Frozen):
    release: str
    package: str


class Workload(_Frozen):
    """A closed loop of equal requests: the next starts as one ends."""

    description: str
    input_len: Annotated[int, Field(ge=1)]
    """Prompt tokens of every request."""
    output_len: Annotated[int, Field(ge=2)]
    """Generated tokens of every request."""
    num_prompts: Annotated[int, Field(ge=1)]
    max_concurrency: Annotated[int, Field(ge=1)]
    """Requests in flight at most."""
    request_rate: Literal["inf"]
    metric: Literal["output_throughput", "median_tpot_ms"]
    better: Literal["higher", "lower"]


class EngineFlags(_Frozen):
    """vLLM's flags on the checkpoint track, in its own spelling with underscores."""

    max_model_len: Annotated[int, Field(ge=1)]
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)]
    max_num_seqs: Annotated[int, Field(ge=1)]
    max_num_batched_tokens: Annotated[int, Field(ge=1)]
    enable_prefix_caching: bool
    seed: int


class TierMargins(_Frozen):
    a: Share = Field(alias="A")
    b: Share = Field(alias="B")


class QualityGate(_Frozen):
    margins: TierMargins
    """Largest accuracy drop of any domain, a fraction, by tier."""
    required_tier: Literal["A", "B"]
    evaluations_pooled: Annotated[int, Field(ge=1)]


class Gates(_Frozen):
    quality: QualityGate
    speed_floor: str
    length: str


class EngineTrack(_Frozen):
    checkpoint: str
    serving: str
    order: str


class ContractRules(_Frozen):
    configuration: str
    foreign_tensor_share: Share
    """Largest share of the source's bytes that foreign tensors may hold."""
    foreign_tensors: str
    kl_ceiling_nats: Positive
    kl_rule: str


class CostRules(_Frozen):
    scale_gpu_hours: Positive
    rule: str


class SubmissionRules(_Frozen):
    scored_per_task: dict[str, Annotated[int, Field(ge=0)]]
    counts: str


class AuditRules(_Frozen):
    samples_per_scenario: Annotated[int, Field(ge=1)]
    median_gap_limit_nats: dict[str, Positive]
    min_length_ratio: Share
    max_empty_share: Share


class EngineRules(_Frozen):
    memory: str
    budget_factor: Annotated[float, Field(ge=1)]
    """The budget is this times the workload's peak."""
    context_gib: Annotated[float, Field(ge=0)]
    """The cap is the budget plus this much on each device, for its context and graphs."""
    budget_rate: Share
    """Share of its rate a capped candidate must keep to be healthy."""
    budget_rule: str
    offload: str
    timed_output_audit: AuditRules

    def budget_gib(self, peak_gib: float) -> float:
        """What a capped server is told to stay within, given the workload's peak."""
        return self.budget_factor * peak_gib

    def cap_gib(self, peak_gib: float, devices: int) -> float:
        """What its devices leave it, all of them together."""
        return self.budget_gib(peak_gib) + devices * self.context_gib


class Rules(_Frozen):
    """The whole rules file."""

    version: str
    rules: ScoreRules
    vllm: VllmRelease
    voided_tasks: dict[str, str]
    """Accuracy domains left out, with the reason."""
    workload: Workload
    """The first workload again, as older clients read it."""
    workloads: dict[str, Workload]
    engine_flags: EngineFlags
    gate: Gates
    lowbit_score: str
    perplexity: str
    engine_track: EngineTrack
    contract: ContractRules
    cost: CostRules
    precision: str
    submission: SubmissionRules
    engine: EngineRules


def parse_rules(text: str | bytes, where: str) -> Rules:
    """Reads a rules file's text.

    Raises ConfigError that names the first field which is missing, unknown or out of range, or at odds with
    its twin (`rules.version`, `rules.workloads`, `contract.kl_ceiling_nats`, `cost.scale_gpu_hours`).
    """
    try:
        rules = Rules.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "(the file)"
        missing = first["type"] == "missing"
        raise ConfigError(
            f"the rules are not valid: {first['msg']}",
            where=f"{where}: {field}",
            found=None if missing else repr(first["input"])[:80],
            remedy="Compare with lowbit_ray/rules/v23.json.",
        ) from None
    twins = {
        "rules.version": (rules.rules.version, rules.version, "version"),
        "rules.workloads": (rules.rules.workloads, len(rules.workloads), "number of entries in workloads"),
        "contract.kl_ceiling_nats": (
            rules.contract.kl_ceiling_nats,
            rules.rules.kl_ceiling,
            "rules.kl_ceiling",
        ),
        "cost.scale_gpu_hours": (rules.cost.scale_gpu_hours, rules.rules.cost_scale, "rules.cost_scale"),
        "workload": (rules.workload, next(iter(rules.workloads.values())), "first of workloads"),
    }
    for field, (found, expected, twin) in twins.items():
        if found != expected:
            raise ConfigError(
                "two fields that say the same thing disagree",
                where=f"{where}: {field}",
                found=found,
                expected=f"{expected} ({twin})",
                remedy="Make them equal.",
            )
    return rules


def first_workload(names: Iterable[str]) -> str:
    """The workload whose peak and speed records show alone: `serve`, or the first where there is none."""
    listed = list(names)
    return WORKLOAD_NAMES[0] if WORKLOAD_NAMES[0] in listed else listed[0]


@cache
def load_rules(path: Path = DEFAULT_RULES) -> Rules:
    """The rules in `path` (the published v23 by default); ConfigError as `parse_rules`."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the rules file cannot be read: {error.strerror}", where=str(path)) from None
    return parse_rules(text, path.name)
