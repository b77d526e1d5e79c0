"""Handing in, listing, looking at and cancelling submissions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Header, Query, Request, Response
from fastapi import Path as InPath
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool

from lowbit_ray.index import Cancellation, Standing
from lowbit_ray.journal import log_action
from lowbit_ray.people import Person
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.handed_in import EXAMPLES, NewSubmission, printable
from lowbit_ray.service.intake import take_in
from lowbit_ray.service.problems import Refusal, header, problems
from lowbit_ray.service.shown import find, position, shown
from lowbit_ray.service.versioned import UNCHANGED, Versioned, answer
from lowbit_ray.service.views import FinishedView, Listed, Page, UnfinishedView, listed
from lowbit_ray.service.who import Anybody, may_see, writing

__all__ = ["SubmissionId", "router"]

router = APIRouter(prefix="/api/submissions", tags=["submissions"], responses=problems(401, 429, 503))

SubmissionId = Annotated[str, InPath(pattern=r"^[0-9a-f]{16}$", examples=["a553eefea2d24359"])]
Writer = Annotated[Person, Depends(writing)]
Cursor = Annotated[
    str | None,
    Query(
        pattern=r"^\d{8}T\d{6}\.\d{6}-[0-9a-f]{16}$",
        description="`next` of a page",
        examples=["20261130T143134.000000-a553eefea2d24359"],
    ),
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,128}$",
        examples=["night-run-7"],
        description="The same key of the same person gives the same submission, however often it is sent.",
    ),
]
View = FinishedView | UnfinishedView
SHOWN: dict[int | str, dict[str, Any]] = {200: {"model": View}}


@router.post(
    "",
    status_code=201,
    summary="Hand in a submission",
    response_model=UnfinishedView,
    responses={
        200: {"model": View, "description": "It was handed in before"},
        201: {"headers": {"Location": header("Its address")}},
        **problems(400, 403, 409, 413, 422),
    },
)
async def submit(
    body: Annotated[NewSubmission, Body(openapi_examples=EXAMPLES)],
    desk: TheDesk,
    person: Writer,
    key: Key = None,
) -> Response:
    """Takes a submission in. It is safe once this answers; a quota is charged when a verdict is reached.

    Send an `Idempotency-Key`, and the same request again when no answer came.
    """
    new, standing = await run_in_threadpool(take_in, desk, person, body, key)
    headers = {"Location": f"/api/submissions/{standing.id}"}
    return _json(await shown(desk, standing), 201 if new else 200, headers)


@router.get("", summary="Submissions, the newest first", responses=problems(422))
async def submissions(
    desk: TheDesk,
    person: Anybody,
    task: Annotated[str | None, Query(max_length=64, examples=["qwen3-8b"])] = None,
    participant: Annotated[str | None, Query(max_length=64, examples=["ann"])] = None,
    status: Annotated[
        Literal["waiting", "running", "done", "rejected", "failed", "cancelled"] | None, Query()
    ] = None,
    split: Annotated[Literal["dev", "test"] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Cursor = None,
) -> Page:
    """Scored ones of everybody, dev ones of one's own."""
    newest: list[Standing] = desk.per_change("newest", lambda: desk.index.all()[::-1])
    items: list[Listed] = []
    last = None
    for standing in newest:
        one = standing.submission
        wanted = (
            (cursor is None or standing.arrival < cursor)
            and (task is None or one.task_id == task)
            and (participant is None or one.participant == participant)
            and (status is None or standing.state.status == status)
            and (split is None or one.split == split)
            and may_see(person, one.participant, one.split)
        )
        if not wanted:
            continue
        if len(items) == limit:
            return Page(items=tuple(items), next=last)
        waits = standing.state.status == "waiting"
        items.append(listed(standing, position(desk, standing.id) if waits else None))
        last = standing.arrival
    return Page(items=tuple(items), next=None)


@router.get(
    "/{id}",
    summary="One submission",
    response_model=View,
    responses=UNCHANGED | {200: SHOWN[200] | UNCHANGED[200]} | problems(404, 422),
)
async def submission(
    id: SubmissionId,  # noqa: A002  # the API's word
    desk: TheDesk,
    person: Anybody,
    request: Request,
) -> Response:
    """Its public record once there is one; before, the same keys with where it stands."""
    return answer(request, await shown(desk, await find(desk, id, person)))


@router.delete("/{id}", summary="Cancel", response_model=View, responses=SHOWN | problems(403, 404, 409, 422))
async def cancel(
    id: SubmissionId,  # noqa: A002
    desk: TheDesk,
    person: Writer,
    reason: Annotated[str, Query(max_length=200, examples=["wrong commit"]), AfterValidator(printable)] = "",
) -> Response:
    """Stops it before its next step: no quota is used, only GPU-hours until then. Doing it again changes nothing."""
    standing = await find(desk, id, person)
    if standing.submission.participant != person.name and not person.organizer:
        raise Refusal(403, "The submission is somebody else's")
    standing = await run_in_threadpool(_cancel, desk, standing, person, reason)
    return _json(await shown(desk, standing))


def _cancel(desk: Desk, standing: Standing, person: Person, reason: str) -> Standing:
    current = desk.index.reread(standing.id) or standing
    if current.summary is not None:
        raise Refusal(409, "The submission is finished", f"It is {current.state.status}.")
    if current.cancelled is None:
        if standing.submission.participant != person.name:
            log_action(desk.ledger, person.name, "cancelled", standing.id, reason)
        stop = Cancellation(by=person.name, at=datetime.now(UTC), reason=reason)
        desk.ledger.create(f"submissions/{standing.id}/cancelled.json", stop.model_dump_json().encode())
    return desk.index.reread(standing.id) or current


def _json(content: Versioned, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(content.data, status, headers, media_type="application/json")
