"""A record as one HTML file without scripts or outside references: readable light or dark, on a phone or a desk."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from lowbit_ray.records import Record
from lowbit_ray.report.lines import headline, lines_of, workload_rows
from lowbit_ray.report.picture import Point, picture

__all__ = ["result_page"]


def result_page(record: Record) -> str:
    """The page of one record; everything a participant supplied is escaped."""
    environment = Environment(
        loader=PackageLoader("lowbit_ray.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    result = record.result
    return environment.get_template("result.html").render(
        record=record,
        result=result,
        headline=headline(record),
        lines=lines_of(record),
        workloads=workload_rows(result) if result else [],
        picture=_picture(record),
    )


def _picture(record: Record) -> str:
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
    )
    return picture([Point(label="BF16", kind="anchor", drift=0.0, efficiency=1.0, score=1.0), candidate])
