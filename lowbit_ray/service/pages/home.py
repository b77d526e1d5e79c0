"""The first page: tasks, how to submit, what is going on; the list of submissions; signing in."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from lowbit_ray.people import Person
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.login import page_after
from lowbit_ray.service.pages.site import frame, part
from lowbit_ray.service.reference import task_view
from lowbit_ray.service.shown import position
from lowbit_ray.service.views import Listed, listed
from lowbit_ray.service.who import Anybody, may_see

__all__ = ["router"]

router = APIRouter()

LATEST = 8
PER_PAGE = 50
STATUSES = ("waiting", "running", "done", "rejected", "failed", "cancelled")


@router.get("/")
async def home(request: Request, desk: TheDesk, person: Anybody) -> HTMLResponse:
    """Tasks with their leaders, three commands, the latest submissions."""
    waiting = len(desk.index.waiting())
    tasks = [
        (task_view(task, desk.rules), [row for row in desk.index.board(name, desk.rules) if row.rank][:3])
        for name, task in desk.tasks.items()
    ]
    body = part(
        "home.html",
        tasks=tasks,
        latest=_newest(desk, person, {}, LATEST),
        waiting=waiting,
        everything=len(desk.index.standings),
        running=len(desk.index.running()),
        url=str(request.base_url).rstrip("/"),
        scale=desk.rules.rules.scale,
    )
    return frame(desk, person, "Low-bit language models, measured", body, here="/")


@router.get("/submissions")
async def submissions(request: Request, desk: TheDesk, person: Anybody) -> HTMLResponse:
    """The newest submissions that somebody may see, filtered by the address's query."""
    given = {
        name: request.query_params.get(name, "")[:64] for name in ("task", "status", "participant", "before")
    }
    items = _newest(desk, person, given, PER_PAGE + 1)
    body = part(
        "submissions.html",
        items=items[:PER_PAGE],
        more=items[PER_PAGE - 1].id if len(items) > PER_PAGE else None,
        given=given,
        tasks=list(desk.tasks),
        statuses=STATUSES,
    )
    return frame(desk, person, "Submissions", body, here="/submissions")


@router.get("/login")
async def login(request: Request, desk: TheDesk, person: Anybody) -> HTMLResponse:
    """A form for a token; the address's `next` is the page that it leads to."""
    body = part("login.html", person=person, after=page_after(request.query_params.get("next", "")))
    return frame(desk, person, "Sign in", body, here="/login")


def _newest(desk: Desk, person: Person | None, given: dict[str, str], most: int) -> list[Listed]:
    """The newest first; `before` is the last id of the page before."""
    newest = desk.per_change("newest", lambda: desk.index.all()[::-1])
    edge = desk.index.get(given.get("before", ""))
    found: list[Listed] = []
    for standing in newest:
        one = standing.submission
        wanted = (
            (edge is None or standing.arrival < edge.arrival)
            and given.get("task", "") in {"", one.task_id}
            and given.get("participant", "") in {"", one.participant}
            and given.get("status", "") in {"", standing.state.status}
            and may_see(person, one.participant, one.split)
        )
        if wanted:
            waits = standing.state.status == "waiting"
            found.append(listed(standing, position(desk, standing.id) if waits else None))
            if len(found) == most:
                break
    return found
