"""The service as its participants' commands ask it; needs nothing of what the service itself needs.

Questions and repeated submissions are asked again where no answer comes: a submission carries a key, so that it is
taken in once.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx2

from lowbit_ray.errors import ConfigError, InfraError
from lowbit_ray.service.answers import events_of, refuse, sent

__all__ = ["Service", "read_token", "write_token"]

TRIES = 5
LONG_TRIES = 20
"""Of a stream that breaks: some eight minutes."""
SLEEPS_S = (0.2, 0.5, 1.0, 2.0)
LONGEST_SLEEP_S = 30.0
AGAIN = frozenset({429, 502, 503, 504})

Json = dict[str, Any]
T = TypeVar("T")


def read_token(path: Path) -> str | None:
    """The token that the file holds, None where there is no such file; ConfigError where it holds something else."""
    try:
        text = path.read_bytes().decode("ascii").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"the token cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        text = "\n"
    if not text.isprintable():
        raise ConfigError("no token", where=str(path), expected="one line of printable ASCII characters")
    return text or None


def write_token(path: Path, token: str) -> None:
    """Keeps a token where its user alone can read it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        part.touch(mode=0o600)
        part.write_text(token + "\n")
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"the token cannot be kept: {error.strerror}", where=str(path)) from None


class Service:
    """One service. InfraError where it does not answer, ConfigError for a token it refuses, SubmissionError for
    whatever else it refuses."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = 30.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                "not the address of a service",
                where="LOWBIT_URL",
                found=url,
                expected="http://… or https://…",
            )
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(base_url=self.url, headers=headers, timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def submit(self, body: Json, key: str | None = None) -> Json:
        """Hands a submission in; `key` makes it the same one each time."""
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        return self._json("POST", "/api/submissions", json=body, headers=headers)

    def show(self, submission: str) -> Json:
        """A submission's record, or where it stands."""
        return self._json("GET", f"/api/submissions/{quote(submission, safe='')}")

    def list(self, **filters: str) -> Json:
        """One page of submissions, the newest first."""
        return self._json("GET", "/api/submissions", params=filters)

    def flag(self, submission: str, reason: str) -> Json:
        """Takes a submission off the board; for organizers."""
        return self._json("PUT", _flag(submission), json={"reason": reason})

    def unflag(self, submission: str) -> Json:
        """Puts it back on the board; for organizers."""
        return self._json("DELETE", _flag(submission))

    def audit(self, **filters: str) -> Sequence[Json]:
        """What organizers did, the oldest first; for organizers."""
        actions: Sequence[Json] = self._ask("GET", "/api/audit", params=filters).json()
        return actions

    def cancel(self, submission: str, reason: str = "") -> Json:
        """Stops a submission."""
        return self._json(
            "DELETE", f"/api/submissions/{quote(submission, safe='')}", params={"reason": reason}
        )

    def logs(self, submission: str) -> dict[str, str]:
        """The start-up logs of one's own submission, by name."""
        path = f"/api/submissions/{quote(submission, safe='')}/logs"
        names: list[str] = self._ask("GET", path).json()
        return {name: self._ask("GET", f"{path}/{quote(name, safe='')}").text for name in names}

    def board(self, task: str) -> Json:
        """A task's board."""
        return self._json("GET", f"/api/board/{quote(task, safe='')}")

    def me(self) -> Json:
        """Who one is, and what one has left."""
        return self._json("GET", "/api/me")

    def follow(self, submission: str) -> Iterator[Json]:
        """Each change of where a submission stands, to its end; connects again where the stream breaks."""
        path = f"/api/submissions/{quote(submission, safe='')}/events"
        failures, patience = 0, TRIES
        while True:
            try:
                with self._http.stream("GET", path, timeout=httpx2.Timeout(30.0)) as answer:
                    if answer.status_code != 200:
                        answer.read()
                        if answer.status_code not in AGAIN:
                            refuse(answer, self.url, sent(path, {}))
                        raise httpx2.ReadError("the service is busy")
                    for event, data in events_of(answer.iter_lines()):
                        failures, patience = 0, LONG_TRIES  # it was there: it may be back
                        if event in {"state", "end"}:
                            yield json.loads(data)
                        if event == "end":
                            return
            except httpx2.TransportError as error:
                failures += 1
                if failures >= patience:
                    raise self._away(error) from None
                time.sleep(min(LONGEST_SLEEP_S, 0.1 * 2**failures))

    def _json(self, method: str, path: str, **options: Any) -> Json:
        answer: Json = self._ask(method, path, **options).json()
        return answer

    def _ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        answer = self._tried(lambda: self._http.request(method, path, **options))
        if answer.status_code >= 400:
            refuse(answer, self.url, sent(path, options))
        return answer

    def _tried(self, ask: Callable[[], httpx2.Response]) -> httpx2.Response:
        for sleep_s in (*SLEEPS_S, None):
            try:
                answer = ask()
            except httpx2.TransportError as error:
                if sleep_s is None:
                    raise self._away(error) from None
            except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError) as error:
                raise self._away(error) from None
            else:
                if sleep_s is None or answer.status_code not in AGAIN or _is_quota(answer):
                    return answer
                sleep_s = min(LONGEST_SLEEP_S, max(sleep_s, _asked_s(answer)))
            time.sleep(sleep_s)
        raise AssertionError("the last try returns or raises")

    def _away(self, error: Exception) -> InfraError:
        return InfraError(
            "the service does not answer",
            where=self.url,
            found=f"{type(error).__name__}: {error}"[:200],
            remedy="Is LOWBIT_URL its address?",
        )


def _flag(submission: str) -> str:
    return f"/api/submissions/{quote(submission, safe='')}/flag"


def _is_quota(answer: httpx2.Response) -> bool:
    """A quota that is used up for today is not worth waiting for."""
    return answer.status_code == 429 and _asked_s(answer) > LONGEST_SLEEP_S


def _asked_s(answer: httpx2.Response) -> float:
    """Seconds that `Retry-After` asks for; 0 where it says none, or a date."""
    asked = answer.headers.get("retry-after", "")
    return float(asked) if asked.isdigit() else 0.0
