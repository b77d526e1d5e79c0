"""All that a page shows of one record, gathered: what the standalone page and the service's page render alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.audit import Audit
from lowbit_ray.recheck import recheck
from lowbit_ray.records import Record
from lowbit_ray.report.advice import Advice, advice_on
from lowbit_ray.report.limits import Limit, audited, gap_limit, limits_of
from lowbit_ray.report.lines import NAMES, Line, fault_lines, headline, lines_of
from lowbit_ray.report.picture import Point, picture
from lowbit_ray.report.precision_table import PrecisionRow, RegionView, precision_rows, region_views
from lowbit_ray.report.steps import Span, time_line
from lowbit_ray.report.strip import Strip, strip_of
from lowbit_ray.report.workloads import WorkloadView, workload_views
from lowbit_ray.rules import Rules
from lowbit_ray.tasks import Task

__all__ = ["AuditView", "KLView", "RecordView", "view_of"]


@dataclass(frozen=True, slots=True)
class AuditView:
    """One workload's audit and its strip."""

    title: str
    audit: Audit
    strip: Strip | None
    """None where no sample could be scored."""


@dataclass(frozen=True, slots=True)
class KLView:
    """The KL beside its noise floor and its ceiling, percent of a bar."""

    kl: float
    floor: float
    ceiling: float


@dataclass(frozen=True, slots=True)
class RecordView:
    """One record's sections."""

    headline: str
    good: bool
    advice: list[Advice]
    fault: list[Line]
    """Why there is no score: which rule, what was seen, the limit; empty where there is one."""
    lines: list[Line]
    limits: list[Limit]
    workloads: list[WorkloadView]
    precision: list[PrecisionRow]
    regions: list[RegionView]
    kl: KLView | None
    audits: list[AuditView]
    spans: list[Span]
    gpus: int
    """GPUs of the pod."""
    picture: str
    agreeing: int
    """Derived numbers that follow from the measured ones, computed again just now."""
    checked: int


def view_of(record: Record, rules: Rules, task: Task | None, *, beside: Sequence[Point] = ()) -> RecordView:
    """The sections of a record's page; `beside` are further points of the picture."""
    result = record.result
    gpus = _gpus(record, task)
    agreeing, checked = _recheck(record, rules)
    return RecordView(
        headline=headline(record),
        good=result is not None and result.qualified,
        advice=advice_on(record),
        fault=fault_lines(record),
        lines=[
            line for line in lines_of(record) if not line.title.startswith("Gate:")
        ],  # shown with all limits
        limits=limits_of(result, rules, task) if result else [],
        workloads=workload_views(result, task.timed_workloads(rules) if task else rules.workloads)
        if result
        else [],
        precision=precision_rows(record),
        regions=region_views(result.precision) if result else [],
        kl=_kl(record, rules),
        audits=_audits(record, rules, task),
        spans=time_line(record.time_line, gpus, record.charged_hours),
        gpus=gpus,
        picture=_picture(record, rules, beside),
        agreeing=agreeing,
        checked=checked,
    )


def _gpus(record: Record, task: Task | None) -> int:
    if task is not None:
        return task.pod.tensor_parallel
    return len(record.host.gpus) if record.host else 0


def _recheck(record: Record, rules: Rules) -> tuple[int, int]:
    if record.result is None:
        return 0, 0
    try:
        checks = recheck(record.model_dump(mode="json"), rules, speed_floor=record.result.speed_floor)
    except ConfigError:  # a record whose numbers cannot be scored has nothing that agrees
        return 0, 1
    return sum(check.status == "agrees" for check in checks), len(checks)


def _kl(record: Record, rules: Rules) -> KLView | None:
    if record.result is None:
        return None
    kl, floor, ceiling = record.result.kl.kl, record.result.noise_floor.kl, rules.rules.kl_ceiling
    whole = 1.15 * max(kl, floor, ceiling)
    return KLView(
        kl=100 * max(kl, 0.0) / whole, floor=100 * max(floor, 0.0) / whole, ceiling=100 * ceiling / whole
    )


def _audits(record: Record, rules: Rules, task: Task | None) -> list[AuditView]:
    if record.result is None:
        return []
    limit = gap_limit(record.result, rules, task)
    return [
        AuditView(title=NAMES.get(name, name), audit=audit, strip=strip_of(audit, limit))
        for name, audit in audited(record.result)
    ]


def _picture(record: Record, rules: Rules, beside: Sequence[Point]) -> str:
    result = record.result
    if result is None:
        return ""
    candidate = Point(
        label=record.solution.precision or record.solution.method,
        kind="candidate",
        drift=result.drift,
        efficiency=result.efficiency_gain,
        drift_se=result.drift_se or 0.0,
        score=result.score,
        score_se=result.score_se,
    )
    anchor = Point(label="BF16", kind="anchor", drift=0.0, efficiency=1.0, score=1.0)
    return picture([anchor, *beside, candidate], scale=rules.rules.scale)
