"""A repository of the Hugging Face hub, or of any server that speaks its API, at an exact commit.

    GET {endpoint}/api/models/{repository}/revision/{commit}?blobs=true   names, sizes, hashes
    GET {endpoint}/{repository}/resolve/{commit}/{file}                   bytes, with Range to resume

Branches and tags are refused: they move. `HF_ENDPOINT` and `HF_TOKEN` count as huggingface_hub reads them. The
token is sent to the endpoint only, never to the store it redirects to.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import stamina

from lowbit_ray.checkpoint.origins import Listed
from lowbit_ray.errors import AbsentError, CheckpointError, FetchError

__all__ = ["COMMIT", "HubOrigin", "parse_hub"]

COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
TIMEOUT = httpx2.Timeout(30.0, read=60.0)
ATTEMPTS = 5
MAX_REDIRECTS = 5


def parse_hub(text: str) -> HubOrigin:
    """`owner/name@<commit>` as an origin; CheckpointError for a branch, a tag or no revision at all."""
    repository, _, revision = text.removeprefix("hf://").partition("@")
    if REPOSITORY.fullmatch(repository) is None:
        raise CheckpointError("not a repository", where=text[:200], expected="owner/name@<40 hex digits>")
    if COMMIT.fullmatch(revision) is None:
        raise CheckpointError(
            "not an exact commit" if revision else "the commit is missing",
            where=text[:200],
            found=revision[:60] or None,
            expected="40 hex digits",
            remedy="A branch or tag moves; take the commit from the repository's history.",
        )
    return HubOrigin(repository, revision)


class _Again(Exception):
    """A failure that may pass: the network's, a 429, a 5xx."""


@dataclass(frozen=True)
class HubOrigin:
    """One repository at one commit."""

    repository: str
    commit: str
    endpoint: str | None = None
    """None takes HF_ENDPOINT, or the public hub."""
    token: str | None = field(default=None, repr=False)
    """None takes HF_TOKEN, or the one that `hf auth login` stored."""
    wait_initial_s: float = 1.0
    """First pause before a request is tried again."""

    @property
    def name(self) -> str:
        return f"{self.repository}@{self.commit}"

    @property
    def pinned(self) -> bool:
        return True

    @property
    def base(self) -> str:
        if self.endpoint is not None:
            return self.endpoint.rstrip("/")
        from huggingface_hub import constants  # takes 0.3 s to import, and needs no folder or S3 user

        return constants.ENDPOINT.rstrip("/")

    def listing(self) -> list[Listed]:
        url = f"{self.base}/api/models/{self.repository}/revision/{self.commit}"
        answer = self._retry(lambda: self._get_json(url))
        if answer.get("sha") != self.commit:
            raise CheckpointError(
                "the hub knows this revision as another commit",
                where=self.name,
                found=str(answer.get("sha"))[:60],
                expected=self.commit,
                remedy="Name the commit itself, not a tag that looks like one.",
            )
        siblings = answer.get("siblings")
        if not isinstance(siblings, list):
            raise FetchError("the hub's answer lists no files", where=url)
        return [self._listed(entry, url) for entry in siblings]

    def _listed(self, entry: Any, url: str) -> Listed:
        try:
            lfs = entry.get("lfs") or {}
            size = entry["size"] if entry.get("size") is not None else lfs["size"]
            sha256, blob = lfs.get("sha256") or lfs.get("oid"), entry.get("blobId")
            if type(size) is not int or size < 0:
                raise TypeError("size")
            return Listed(str(entry["rfilename"]), size, str(sha256 or blob), sha256, None if lfs else blob)
        except (AttributeError, KeyError, TypeError) as error:
            raise FetchError(f"the hub's answer lacks a file's {error}", where=url) from None

    def read(self, file: Listed, start: int) -> Iterator[bytes]:
        """The bytes from `start`; a broken connection goes on where it broke, five times in a row at most."""
        failures = 0
        while start < file.size:
            try:
                for chunk in self._stream(file, start):
                    start += len(chunk)
                    failures = 0
                    yield chunk
                if start < file.size:
                    raise _Again("the connection ended early")
            except _Again as error:
                failures += 1
                if failures >= ATTEMPTS:
                    raise FetchError(
                        f"the hub did not deliver: {error}", where=f"{self.name}: {file.path}"
                    ) from None
                time.sleep(min(self.wait_initial_s * 2 ** (failures - 1), 60.0))

    def _stream(self, file: Listed, start: int) -> Iterator[bytes]:
        url = f"{self.base}/{self.repository}/resolve/{self.commit}/{quote(file.path)}"
        where = f"{self.name}: {file.path}"
        try:
            with (
                self._client() as client,
                client.stream("GET", url, headers={"Range": f"bytes={start}-"}) as answer,
            ):
                _check_status(answer, where)
                skip = start if answer.status_code == 200 else 0  # a server without ranges sends it all
                left = file.size - start
                for chunk in answer.iter_bytes():  # as they arrive: a break loses nothing
                    chunk, skip = chunk[skip:], max(skip - len(chunk), 0)
                    if len(chunk) > left:
                        raise FetchError(
                            "the hub sends more than it listed", where=where, expected=f"{file.size} bytes"
                        )
                    left -= len(chunk)
                    if chunk:
                        yield chunk
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise _Again(f"{type(error).__name__}: {error}") from None

    def _get_json(self, url: str) -> dict[str, Any]:
        try:
            with self._client() as client:
                answer = client.get(url, params={"blobs": "true"})
        except httpx2.TransportError as error:
            raise _Again(f"{type(error).__name__}: {error}") from None
        _check_status(answer, self.name)
        try:
            data = answer.json()
        except ValueError:
            raise FetchError("the hub's answer is not JSON", where=url) from None
        if not isinstance(data, dict):
            raise FetchError("the hub's answer is not an object", where=url)
        return data

    def _retry(self, call: Any) -> Any:
        try:
            for attempt in self._attempts():
                with attempt:
                    return call()
        except _Again as error:
            raise FetchError(f"the hub did not answer: {error}", where=self.name) from None

    def _attempts(self) -> Iterable[stamina.Attempt]:
        jitter = min(self.wait_initial_s, 1.0)
        return stamina.retry_context(
            _Again, attempts=ATTEMPTS, wait_initial=self.wait_initial_s, wait_jitter=jitter
        )

    def _client(self) -> httpx2.Client:
        token = self.token
        if token is None and self.endpoint is None:
            from huggingface_hub import get_token

            token = get_token()
        home = urlsplit(self.base).netloc

        def guard(request: httpx2.Request) -> None:
            if request.url.netloc.decode() != home:
                request.headers.pop("Authorization", None)

        headers = {"User-Agent": "lowbit-ray", "Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return httpx2.Client(
            headers=headers,
            timeout=TIMEOUT,
            follow_redirects=True,
            max_redirects=MAX_REDIRECTS,
            event_hooks={"request": [guard]},
        )


def _check_status(answer: httpx2.Response, where: str) -> None:
    """Turns an HTTP status into whose fault it is."""
    code = answer.status_code
    if code in (200, 206):
        return
    if code == 429 or code >= 500:
        raise _Again(f"HTTP {code}")
    if code in (401, 403):
        raise AbsentError("the repository is private, gated or absent", where=where, found=f"HTTP {code}")
    if code in (404, 410):
        raise AbsentError("no such repository, commit or file", where=where, found=f"HTTP {code}")
    raise FetchError("the hub refused the request", where=where, found=f"HTTP {code}")
