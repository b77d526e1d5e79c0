"""The service as a process of its own, as `uvicorn` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fakes.ports import free_port

__all__ = ["Served", "served"]


@dataclass
class Served:
    """A service that can be killed and started again at the same address."""

    ledger: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """All that it printed."""
        return self.folder / "service.log"

    def start(self) -> None:
        """Returns once it is ready."""
        command = [
            "-m",
            "uvicorn",
            "--factory",
            "lowbit_ray.service.app:configured",
            "--port",
            str(self.port),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOWBIT_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, "--log-level", "trace", "--timeout-graceful-shutdown", "1"],
                env=environment | {"LOWBIT_LEDGER": self.ledger} | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 60
        while not self._ready():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, "the service does not get ready"
            time.sleep(0.1)

    def kill(self) -> None:
        """At once, nothing is told."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def served(ledger: str, folder: Path, **environment: str) -> Iterator[Served]:
    """A service over a ledger, for the length of the block."""
    service = Served(ledger, folder, environment)
    service.start()
    try:
        yield service
    finally:
        service.kill()
