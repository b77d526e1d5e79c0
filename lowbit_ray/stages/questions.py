"""What is asked of an engine on a pod: picklable questions, one class a measurement.

They carry hidden prompts to the pod, so their fields stay out of `repr`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from lowbit_ray.conduct import ConductLimits
from lowbit_ray.engines.actor import Progress
from lowbit_ray.measure.accuracy.answers import Answers
from lowbit_ray.measure.accuracy.items import Item
from lowbit_ray.measure.accuracy.run import collect_answers
from lowbit_ray.measure.audit import Audit, audit_outputs
from lowbit_ray.measure.consistency import Consistency, check_consistency
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.kl import KLResult, Reference, make_reference, measure_kl
from lowbit_ray.measure.load import Prompt
from lowbit_ray.measure.perplexity import AnchorLoss, PerplexityResult, anchor_loss, measure_perplexity
from lowbit_ray.measure.prompts import Tokenizer
from lowbit_ray.measure.replay import Replay, replay
from lowbit_ray.measure.workload import Output, Timed, WarmUp, run_workload
from lowbit_ray.rules import Workload
from lowbit_ray.tasks import AccuracyPlan, KLPlan

__all__ = [
    "AskAgain",
    "AskItems",
    "AskWindows",
    "AuditOutputs",
    "CheckConsistency",
    "MakeReference",
    "MeasureKL",
    "MeasurePerplexity",
    "TimeWorkload",
]


@dataclass(frozen=True, slots=True)
class TimeWorkload:
    """One timed run of a workload."""

    name: str
    workload: Workload
    prompts: Sequence[Prompt] = field(repr=False)
    warm_up: WarmUp = field(repr=False)
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> Timed:
        return await run_workload(
            endpoint,
            self.name,
            self.workload,
            self.prompts,
            timeout_s=self.timeout_s,
            warm_up=self.warm_up,
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class MakeReference:
    """The anchor's part of the KL probe, and the probe of itself: the noise floor."""

    prompts: Sequence[Prompt] = field(repr=False)
    plan: KLPlan
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> tuple[Reference, KLResult]:
        reference = await make_reference(
            endpoint, self.prompts, self.plan, timeout_s=self.timeout_s, progress=progress
        )
        floor = await measure_kl(
            endpoint,
            reference,
            concurrency=self.plan.max_concurrency,
            timeout_s=self.timeout_s,
            seed=1,
            progress=progress,
        )
        return reference, floor


@dataclass(frozen=True, slots=True)
class MeasureKL:
    """The KL probe of a candidate."""

    reference: Reference = field(repr=False)
    concurrency: int
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> KLResult:
        return await measure_kl(
            endpoint,
            self.reference,
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class AskItems:
    """All accuracy items; they are scored later, without the pod."""

    items: Sequence[Item] = field(repr=False)
    plan: AccuracyPlan
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> Answers:
        return await collect_answers(
            endpoint,
            self.items,
            self.plan,
            timeout_s=self.timeout_s,
            template_arguments=self.plan.chat_template_arguments,
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class AskWindows:
    """The anchor's part of the perplexity."""

    windows: Sequence[Prompt] = field(repr=False)
    concurrency: int
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> AnchorLoss:
        return await anchor_loss(
            endpoint, self.windows, concurrency=self.concurrency, timeout_s=self.timeout_s, progress=progress
        )


@dataclass(frozen=True, slots=True)
class MeasurePerplexity:
    """The perplexity of a candidate on the anchor's windows."""

    anchor: AnchorLoss = field(repr=False)
    concurrency: int
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> PerplexityResult:
        return await measure_perplexity(
            endpoint, self.anchor, concurrency=self.concurrency, timeout_s=self.timeout_s, progress=progress
        )


@dataclass(frozen=True, slots=True)
class AuditOutputs:
    """The anchor scores what candidate and anchor said while they were timed."""

    candidate: Sequence[Output] = field(repr=False)
    anchor: Sequence[Output] = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    eos_ids: Collection[int]
    samples: int
    seed: bytes = field(repr=False)
    run: str
    concurrency: int
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> Audit:
        return await audit_outputs(
            endpoint,
            self.candidate,
            self.anchor,
            tokenizer=self.tokenizer,
            eos_ids=self.eos_ids,
            samples=self.samples,
            seed=self.seed,
            run=self.run,
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Prompts asked before, in turn with fresh ones."""

    workload: Workload
    seen: Sequence[Prompt] = field(repr=False)
    fresh: Sequence[Prompt] = field(repr=False)
    limits: ConductLimits
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> Replay:
        return await replay(
            endpoint, self.workload, self.seen, self.fresh, self.limits, timeout_s=self.timeout_s
        )


@dataclass(frozen=True, slots=True)
class CheckConsistency:
    """Timed prompts asked as probes, and probes asked in several ways."""

    timed: dict[str, Sequence[Output]] = field(repr=False)
    probes: Sequence[Prompt] = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    eos_ids: Collection[int]
    top_k: int
    timeout_s: float

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> Consistency:
        return await check_consistency(
            endpoint,
            self.timed,
            self.probes,
            tokenizer=self.tokenizer,
            eos_ids=self.eos_ids,
            top_k=self.top_k,
            timeout_s=self.timeout_s,
        )
