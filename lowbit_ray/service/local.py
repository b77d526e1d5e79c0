"""The whole arena on one machine: the service in this process, a Ray with its dispatcher in another.

The service answers also while Ray starts, or where it fails: what is submitted waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from lowbit_ray.errors import ConfigError
from lowbit_ray.journal import account, log_action
from lowbit_ray.ledger import Ledger, open_ledger
from lowbit_ray.people import issue_token, list_people
from lowbit_ray.service.app import create_app
from lowbit_ray.service.client import write_token
from lowbit_ray.settings import Settings

__all__ = ["serve"]

log = logging.getLogger(__name__)

LOCAL_NAME = "local"
"""The organizer who is made with an empty ledger."""
AGAIN_S = 5.0
END_S = 30.0


def serve(
    settings: Settings,
    *,
    host: str,
    port: int,
    evaluate: bool,
    ready: Callable[[str, Path | None], None],
) -> None:
    """Serves until SIGINT or SIGTERM. ready: told the address, and the token file where one was written.

    Raises ConfigError where the address cannot be bound, and whatever `create_app` raises.
    """
    ledger = open_ledger(settings.ledger)
    app = create_app(ledger, settings)
    written = _first_organizer(ledger, settings.token_file) if not list_people(ledger) else None
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, server_header=False
    )
    server = _Server(config, lambda: ready(f"http://{_shown(host)}:{port}", written))
    with _quiet_end(), _cluster() if evaluate else contextlib.nullcontext():
        try:
            server.run()
        except SystemExit:
            raise ConfigError("the address cannot be listened at", where=f"{host}:{port}") from None


def _first_organizer(ledger: Ledger, path: Path) -> Path:
    """Somebody who may do everything, with a token for this user; a token that lies there already is moved aside."""
    if path.exists():  # of another service perhaps, and nobody knows it any more but this file
        aside = path.with_name(f"{path.name}.{datetime.now(UTC):%Y%m%dT%H%M%S}")
        try:
            path.rename(aside)
        except OSError as error:
            raise ConfigError(f"the token cannot be moved aside: {error.strerror}", where=str(path)) from None
        log.warning("the token that was in %s is now in %s", path, aside)
    log_action(
        ledger, f"lowbit serve: {account()}", "token issued", LOCAL_NAME, "first organizer of this ledger"
    )
    write_token(path, issue_token(ledger, LOCAL_NAME, "organizer"))
    return path


@contextlib.contextmanager
def _quiet_end() -> Iterator[None]:
    """uvicorn raises the signal that ended it once more when it is done; all that is left to do then is to leave."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup()
        if self.started:
            self._ready()


@contextlib.contextmanager
def _cluster() -> Iterator[None]:
    """A process with a Ray and a dispatcher for the length of the block, started again where it ends."""
    ended = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def keep() -> None:
        while not ended.is_set():
            command = [sys.executable, "-m", "lowbit_ray.service.cluster"]
            running[:] = [subprocess.Popen(command, env=os.environ | {"RAY_AUTH_MODE": "token"})]
            code = running[0].wait()
            if not ended.is_set():
                log.error("the local Ray ended with exit code %s, it is started again", code)
                ended.wait(AGAIN_S)

    thread = threading.Thread(target=keep, name="cluster", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        deadline = time.monotonic() + END_S
        for process in running:
            process.terminate()
            try:
                process.wait(deadline - time.monotonic())
            except subprocess.TimeoutExpired:
                process.kill()
        thread.join(END_S)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
