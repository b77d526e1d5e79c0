"""Who is asking: nobody in particular, a participant, an organizer.

A bearer token in the `Authorization` header; for pages also a cookie, which counts for reading alone, so that no
other site can make a browser write. A wrong token in the header is refused everywhere, also where none is needed; a
cookie that is not valid any more counts as none.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials
from starlette.concurrency import run_in_threadpool

from lowbit_ray.people import Person
from lowbit_ray.service.desk import Desk, TheDesk
from lowbit_ray.service.limits import Buckets, seconds
from lowbit_ray.service.problems import Refusal
from lowbit_ray.service.visitor import visitor

__all__ = [
    "COOKIE",
    "Anybody",
    "Organizer",
    "Somebody",
    "anybody",
    "may_read_logs",
    "may_see",
    "organizer",
    "somebody",
    "writing",
]

COOKIE = "lowbit_token"
READING = frozenset({"GET", "HEAD"})

bearer = HTTPBearer(
    auto_error=False, description="A token that an organizer issued with `lowbit token issue`."
)


async def anybody(
    request: Request,
    desk: TheDesk,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Person | None:
    """The person who asks, None without a token; 401 for a wrong one, 429 for too many requests."""
    address = visitor(request, desk.settings.proxies)
    person = None
    if "authorization" in request.headers:
        person = await _known(desk, address, credentials.credentials if credentials else "")
        if person is None:
            raise _unauthorized("The token is not valid")
    elif request.method in READING and COOKIE in request.cookies:
        person = await _known(desk, address, request.cookies[COOKIE])
    _take(desk.reads, f"person {person.name}" if person else f"address {address}")
    return person


async def somebody(person: Annotated[Person | None, Depends(anybody)]) -> Person:
    """A participant or an organizer; 401 for anybody else."""
    if person is None:
        raise _unauthorized("A token is needed")
    return person


async def organizer(person: Annotated[Person, Depends(somebody)]) -> Person:
    """An organizer; 403 for a participant."""
    if not person.organizer:
        raise Refusal(403, "Organizers alone may do this")
    return person


async def writing(desk: TheDesk, person: Annotated[Person, Depends(somebody)]) -> Person:
    """Somebody who changes something; a participant as often as the limits allow."""
    if not person.organizer:
        _take(desk.writes, person.name)
    return person


def may_see(person: Person | None, participant: str, split: str) -> bool:
    """Whether somebody may see a submission: scored ones are public, others its participant's and organizers'."""
    return split == "test" or may_read_logs(person, participant)


def may_read_logs(person: Person | None, participant: str) -> bool:
    """Whether somebody may read how a submission's engines started: its participant and organizers."""
    return person is not None and (person.organizer or person.name == participant)


async def _known(desk: Desk, address: str, token: str) -> Person | None:
    person = desk.roster.fresh(token)
    if person is None:
        wait = desk.wrong_tokens.wait_s(address)
        if wait:
            raise _too_many(wait, "Too many wrong tokens")
        person = await run_in_threadpool(desk.roster.find, token)
    if person is None:
        desk.wrong_tokens.take(address)
    return person


def _take(buckets: Buckets, key: str) -> None:
    wait = buckets.take(key)
    if wait:
        raise _too_many(wait, "Too many requests")


def _too_many(wait: float, title: str) -> Refusal:
    return Refusal(429, title, headers={"Retry-After": seconds(wait)})


def _unauthorized(title: str) -> Refusal:
    detail = "Send `Authorization: Bearer <token>`; organizers issue tokens."
    return Refusal(401, title, detail, headers={"WWW-Authenticate": "Bearer"})


Anybody = Annotated[Person | None, Depends(anybody)]
Somebody = Annotated[Person, Depends(somebody)]
Organizer = Annotated[Person, Depends(organizer)]
