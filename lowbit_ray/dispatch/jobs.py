"""Ray's job server: one job an evaluation, named after the submission and which of its jobs it is.

The name makes starting idempotent: a job that exists already is the one that was meant, whoever started it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from dataclasses import dataclass
from typing import Any, Literal

from ray.job_submission import JobStatus, JobSubmissionClient
from ray.util.state import list_nodes

from lowbit_ray.engines.nodes import Node
from lowbit_ray.errors import InfraError
from lowbit_ray.evaluate import BUSY

__all__ = ["Job", "RayJobs", "job_name"]

LOG = logging.getLogger(__name__)
OURS = re.compile(r"lowbit-[0-9a-f]{16}-\d+")
FORGET_S = 7 * 86400.0
MOST_NODES = 10_000
REQUEST_S = 30.0
"""Ray's client knows no time limit of its own: a head that is gone would be waited for without end."""


@dataclass(frozen=True, slots=True)
class Job:
    """What Ray says of a job."""

    status: Literal["active", "ended"]
    busy: bool = False
    """It ended because it could not begin: somebody else was at it, or there was no pod."""
    message: str = ""
    """How it ended, one line."""


class _Client(JobSubmissionClient):  # type: ignore[misc]  # Ray carries no types here
    def _do_request(self, method: str, endpoint: str, **arguments: Any) -> Any:
        return super()._do_request(method, endpoint, **({"timeout": REQUEST_S} | arguments))


class RayJobs:
    """The jobs of one cluster; every method raises InfraError where its head does not answer."""

    def __init__(self, address: str | None = None, *, python: str = "python") -> None:
        """address: of the dashboard, `http://head:8265`; by default that of the cluster this process belongs to.
        python: what runs the drivers, on the head."""
        self._address = address
        self._python = python
        self._client: JobSubmissionClient | None = None

    def start(self, submission: str, job: int, labels: dict[str, str]) -> None:
        """Starts the driver of a submission; one that was started before is left at work."""
        name = job_name(submission, job)
        try:
            self._connected().submit_job(
                entrypoint=f"{self._python} -m jobs.evaluate {submission}",
                submission_id=name,
                metadata=labels | {"submission": submission, "job": str(job)},
            )
        except Exception as error:  # the client raises RuntimeError with words, and what its transport raises
            if "already exists" not in str(error):
                raise self._failed("start", name, error) from None

    def look(self, submission: str, job: int) -> Job | None:
        """How a job is; None where the cluster knows none of this name."""
        name = job_name(submission, job)
        try:
            details = self._connected().get_job_info(name)
        except Exception as error:  # as in `start`
            if "does not exist" in str(error):
                return None
            raise self._failed("look at", name, error) from None
        if not JobStatus(details.status).is_terminal():
            return Job("active")
        code = details.driver_exit_code
        return Job("ended", busy=code == BUSY, message=_how(str(details.status.value), code, details.message))

    def stop(self, submission: str, job: int) -> None:
        """Asks Ray to end a job: SIGTERM, and SIGKILL to one that does not go."""
        name = job_name(submission, job)
        try:
            self._connected().stop_job(name)
        except Exception as error:  # as in `start`
            if "does not exist" not in str(error):
                raise self._failed("stop", name, error) from None

    def forget(self, older_s: float = FORGET_S) -> int:
        """Takes those of ours off Ray's list that ended so long ago, as it never does so itself; how many there were.

        Their verdicts stand in the ledger, their logs stay where Ray has put them.
        """
        before_ms = 1000 * (time.time() - older_s)
        try:
            client = self._connected()
            names = [
                job.submission_id
                for job in client.list_jobs()
                if OURS.fullmatch(job.submission_id or "")
                and JobStatus(job.status).is_terminal()
                and (job.end_time or 0) < before_ms
            ]
            for name in names:
                client.delete_job(name)
        except Exception as error:  # as in `start`
            raise self._failed("forget", "those that have ended", error) from None
        return len(names)

    def nodes(self) -> list[Node]:
        """The cluster's nodes and what they have in all; none where Ray does not say."""
        try:
            states = list_nodes(
                address=self._connected().get_address(),
                filters=[("state", "=", "ALIVE")],
                limit=MOST_NODES,
                timeout=int(REQUEST_S),
                detail=True,
                raise_on_missing_output=False,  # Ray counts nodes that have died among what is missing
            )
        except Exception as error:  # whatever the dashboard raises: the queue goes on without the nodes
            LOG.warning("the nodes are not known: %s", error)
            return []
        return [
            Node(node.node_id, node.node_ip, node.labels or {}, node.resources_total or {}, free={})
            for node in states
        ]

    def _connected(self) -> JobSubmissionClient:
        if self._client is None:
            self._client = _Client(self._address)
        return self._client

    def _failed(self, what: str, name: str, error: Exception) -> InfraError:
        self._client = None  # a new head may have another address
        return InfraError(
            f"Ray's job server did not {what} a job",
            where=name,
            found=f"{type(error).__name__}: {str(error)[:200]}",
            remedy="Is the head up, and its dashboard with it? It is tried again.",
        )


def job_name(submission: str, job: int) -> str:
    """The id under which Ray knows a submission's job."""
    return f"lowbit-{submission}-{job}"


def _how(status: str, code: int | None, message: str | None) -> str:
    """One line on how a job ended, without its log: that stays in Ray."""
    if code is None:
        with contextlib.suppress(IndexError):
            return f"the job ended as {status}: {(message or '').splitlines()[0][:200]}"
        return f"the job ended as {status}"
    if code < 0 or code > 128:
        return f"the driver was killed (signal {-code if code < 0 else code - 128})"
    return f"the driver ended with exit code {code}"
