"""The frame of every page: templates that escape, the head with its links, addresses of style sheet and script.

A page's body is rendered apart from its frame, so that a body which is the same for everybody can be kept while
the frame says who is signed in.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

from jinja2 import PackageLoader, Template
from markupsafe import Markup
from starlette.responses import HTMLResponse

from lowbit_ray import __version__
from lowbit_ray.people import Person
from lowbit_ray.report.page import STYLE, environment
from lowbit_ray.service.desk import Desk
from lowbit_ray.service.pages.words import FILTERS

__all__ = ["STATIC", "asset", "frame", "part", "template"]

STATIC = STYLE.parent
"""Style sheet, script and icon, served under /static."""


@cache
def template(name: str) -> Template:
    """A template, by its file's name."""
    made = environment(PackageLoader("lowbit_ray.service.pages"))
    made.filters |= FILTERS
    made.globals["asset"] = asset
    return made.get_template(name)


@cache
def asset(name: str) -> str:
    """Address of a static file; it changes with the content, so that browsers may keep the file."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def part(name: str, **values: Any) -> Markup:
    """A page's body, or a part of it, from its template."""
    return Markup(template(name).render(**values))  # noqa: S704  # the template escaped what it was given


def frame(
    desk: Desk | None,
    person: Person | None,
    title: str,
    body: Markup,
    *,
    here: str = "",
    status: int = 200,
    within: bool = False,
    live: bool = False,
) -> HTMLResponse:
    """A whole page; `here` is the address of the link in the head that it belongs to, `live` adds the script.

    within: it is not that page itself, but one that belongs to it.
    """
    text = template("frame.html").render(
        title=title,
        body=body,
        here=here,
        current="true" if within else "page",
        person=person,
        tasks=list(desk.tasks) if desk else [],
        rules_version=desk.rules.version if desk else "",
        version=__version__,
        live=live,
    )
    return HTMLResponse(text, status)
