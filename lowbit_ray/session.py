"""Joining Ray: the cluster this process belongs to, or one of this machine alone."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator

import ray
from ray._raylet import Config  # type: ignore[attr-defined]  # compiled

__all__ = ["join_own_job", "ray_session"]

NAMESPACE = "lowbit"
LOCAL_MEMORY = 2**42
"""Bytes that a Ray of this machine alone hands out to pods: nobody else asks for any."""
ENVIRONMENT = {
    # Else actors and drivers without GPUs of their own see every GPU of the host.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # Else Ray runs its workers, and so the engines that are timed, at niceness 15: behind everything on the host.
    "RAY_worker_niceness": "0",
    # Else a driver that is told to stop is killed after three seconds, before its engine has ended: then the lease is
    # not released, and what the evaluation has used stands nowhere.
    "RAY_JOB_STOP_WAIT_TIME_S": "180",
}


JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""What Ray's job server gives a driver that it starts."""


def join_own_job() -> bool:
    """Joins the cluster that started this process as a job; False, and nothing done, where none did.

    For drivers that need Ray only to publish metrics: one that was started by hand outlives the cluster's head, which
    a process that has joined does not.
    """
    if JOB not in os.environ:
        return False
    if not ray.is_initialized():
        ray.init(namespace=NAMESPACE, log_to_driver=False, logging_level="error")
    return True


@contextlib.contextmanager
def ray_session(cpus: int, *, local: bool = False) -> Iterator[None]:
    """A connection to Ray for the length of the block.

    Joins the cluster of the Ray job or of RAY_ADDRESS, unless `local`. Otherwise it starts a Ray on this machine,
    which every process of it leaves with the block; `cpus` is what a pod of it needs at least: where there are
    fewer cores, they are shared.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if os.environ.get("RAY_ADDRESS") and not local:
        ray.init(namespace=NAMESPACE, log_to_driver=False, logging_level="error")
    else:
        _ask_for_a_token()
        ray.init(
            address="local",
            num_cpus=max(cpus, len(os.sched_getaffinity(0))),
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=256 * 2**20,
            _memory=LOCAL_MEMORY,
            namespace=NAMESPACE,
        )
    try:
        with _end_in_good_order():
            yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _end_in_good_order() -> Iterator[None]:
    """SIGTERM raises SystemExit. Ray's own handler, which ray.init puts in the place of any other, has the process
    aborted three seconds later as well: less than an engine may take to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _ask_for_a_token() -> None:
    """Ray listens at the machine's own address too, and runs whatever those say who reach it: now who has the token.

    What is set already holds.
    """
    if "RAY_AUTH_MODE" in os.environ:
        return
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    Config.initialize("")  # it was read when Ray was imported
