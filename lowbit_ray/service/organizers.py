"""What organizers do: flag a submission, lift a flag, read the audit log. Each of it is logged before it is done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from lowbit_ray.errors import LedgerError
from lowbit_ray.index import Flag, Standing
from lowbit_ray.journal import Action, log_action, read_actions
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.handed_in import Words
from lowbit_ray.service.problems import problems
from lowbit_ray.service.shown import find, shown
from lowbit_ray.service.submissions import SubmissionId
from lowbit_ray.service.views import FinishedView, Shown, UnfinishedView
from lowbit_ray.service.who import Organizer

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["organizers"], responses=problems(401, 403, 422, 429, 503))

VIEW: dict[int | str, dict[str, Any]] = {200: {"model": FinishedView | UnfinishedView}}
TRIES = 20


class NewFlag(Shown):
    """Why a submission goes off the board."""

    reason: Words


@router.put(
    "/submissions/{id}/flag",
    summary="Flag: visible, off the board",
    response_model=FinishedView | UnfinishedView,
    responses=VIEW | problems(400, 404, 413),
)
async def flag(id: SubmissionId, body: NewFlag, desk: TheDesk, person: Organizer) -> Response:  # noqa: A002
    """The record stays visible with the reason, and counts on no board."""
    standing = await find(desk, id, person)
    new = Flag(by=person.name, at=datetime.now(UTC), reason=body.reason)
    standing = await run_in_threadpool(_flag, desk, standing, new, "flagged")
    return Response((await shown(desk, standing)).data, media_type="application/json")


@router.delete(
    "/submissions/{id}/flag",
    summary="Lift a flag",
    response_model=FinishedView | UnfinishedView,
    responses=VIEW | problems(404),
)
async def unflag(id: SubmissionId, desk: TheDesk, person: Organizer) -> Response:  # noqa: A002
    """Back on the board."""
    standing = await find(desk, id, person)
    if standing.flag is not None:
        lifted = standing.flag.model_copy(update={"by": person.name, "at": datetime.now(UTC), "lifted": True})
        standing = await run_in_threadpool(_flag, desk, standing, lifted, "flag lifted")
    return Response((await shown(desk, standing)).data, media_type="application/json")


@router.get("/audit", summary="What organizers did, the oldest first")
async def audit(
    desk: TheDesk,
    person: Organizer,
    after: Annotated[str, Query(pattern=r"^(\d{8}T\d{6})?$", examples=["20261130T100000"])] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[Action]:
    """The append-only log."""
    return await run_in_threadpool(read_actions, desk.ledger, after=after, limit=limit)


def _flag(desk: Desk, standing: Standing, flag: Flag, what: str) -> Standing:
    log_action(desk.ledger, flag.by, what, standing.id, flag.reason)
    key, data = f"flags/{standing.id}.json", flag.model_dump_json().encode()
    for _ in range(TRIES):
        entry = desk.ledger.read(key)
        if desk.ledger.create(key, data) if entry is None else desk.ledger.swap(key, data, entry.version):
            return desk.index.reread(standing.id) or standing
    raise LedgerError("others change this flag all the time", where=key)
