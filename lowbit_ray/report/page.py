"""A record as one HTML file without scripts or outside references: readable light or dark, on a phone or a desk."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lowbit_ray.records import Record
from lowbit_ray.report.steps import duration
from lowbit_ray.report.view import view_of
from lowbit_ray.rules import DEFAULT_RULES, Rules, load_rules
from lowbit_ray.tasks import Task, list_tasks, load_task

__all__ = ["STYLE", "environment", "result_page"]

STYLE = Path(__file__).parent / "static" / "lowbit.css"
"""The style sheet of all pages."""


def environment(*first: BaseLoader) -> Environment:
    """Templates that escape all they are given; `first` are looked through before this package's own."""
    made = Environment(
        loader=ChoiceLoader([*first, PackageLoader("lowbit_ray.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"duration": duration, "code": _code}
    return made


def _code(text: str) -> Markup:
    """Our own prose, with what stands between backticks as code; everything is escaped first."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704


@cache
def _environment() -> Environment:
    return environment()


def result_page(record: Record, rules: Rules | None = None, task: Task | None = None) -> str:
    """The page of one record; everything a participant supplied is escaped.

    Rules and task are the published ones unless others are given; a task that is not known here may be left out.
    """
    rules = rules or load_rules(DEFAULT_RULES)
    if task is None and record.task_id in list_tasks():
        task = load_task(record.task_id)
    return (
        _environment()
        .get_template("result.html")
        .render(
            record=record,
            rules=rules,
            view=view_of(record, rules, task),
            css=STYLE.read_text(encoding="utf-8"),
        )
    )
