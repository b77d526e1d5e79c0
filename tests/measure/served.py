"""A fake engine in a process of its own, that can be told what to do while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.bigram import Bigram
from fakes.ports import free_port

from lowbit_ray.measure.endpoint import Endpoint

__all__ = ["NOISE", "PACE", "Served", "Start", "start", "stop"]

ENGINE = Path(__file__).parents[1] / "fakes" / "engine.py"
NOISE = 0.3
"""Of the candidate that most tests use."""
PACE = 150.0
"""Tokens a second: fast, yet tokens seldom share a read on a busy machine."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running fake engine."""

    endpoint: Endpoint
    folder: Path
    process: subprocess.Popen[bytes]
    bigram: Bigram
    base: dict[str, Any] = field(default_factory=dict)
    """What it is told besides in this test."""

    def tell(self, **changes: Any) -> Served:
        """Fields of fake.json that hold until the next call."""
        request = urllib.request.Request(
            self.endpoint.route("/fake"),
            json.dumps({**self.base, **changes}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10):
            return self


Start = Callable[..., Served]


def start(folder: Path, bigram: Bigram, *flags: str) -> Served:
    port = free_port()
    command = [
        sys.executable,
        str(ENGINE),
        "--model",
        str(folder),
        "--port",
        str(port),
        "--served-model-name",
        "m",
    ]
    log = folder / "engine.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--max-logprobs", "-1", *flags], stdout=output)
    served = Served(Endpoint(f"http://127.0.0.1:{port}", "m"), folder, process, bigram)
    for _ in range(400):
        if "startup complete" in log.read_text():
            return served
        assert process.poll() is None, "the fake engine died while it started"
        time.sleep(0.05)
    stop(served)
    raise TimeoutError("the fake engine did not start")


def stop(served: Served) -> None:
    served.process.terminate()
    served.process.wait(timeout=10)
