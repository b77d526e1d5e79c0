"""One local cluster with a job server for all jobs."""

from jobs_server import server

__all__ = ["server"]
