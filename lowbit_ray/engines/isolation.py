"""How an engine is shut in: what is asked for (`Enclosure`, in a spec) and what was done (`Isolation`, in a record).

Plain data; `sandbox.py` turns the one into the other on the machine that starts the engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Enclosure", "Isolation"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Enclosure(BaseModel):
    """What a sandbox lets an engine see and use. Its own folder and the model are readable without being named."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    foreign: bool
    """Whether it is a participant's: then it gets a user id and limits of its own. Our vLLM takes the same way to
    its client, so that a ratio stays fair, but needs no guarding."""
    required: bool
    """Whether it must not be started where no sandbox can be made: what is scored officially."""
    programs: tuple[Path, ...] = ()
    """Interpreters and scripts that it may run; each brings the environment or folder that it lies in."""
    cache_dir: Path
    """The one folder it may write to that outlives it."""
    cache_gib: Positive = 8.0
    """Most that the cache, and any one file, may hold."""
    tmp_gib: Positive = 4.0
    """Size of /tmp and of /dev/shm, each private and in memory."""
    memory_gib: Positive
    """Host memory of all its processes together."""
    processes: Annotated[int, Field(ge=16)]
    """Processes and threads at a time."""
    devices: tuple[Path, ...] = ()
    """Device files beside the usual ones: the pod's GPUs."""


class Isolation(BaseModel):
    """What an engine of the engine track was shut in by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["bubblewrap", "none"]
    """`none` is never scored officially."""
    reason: str | None = None
    """Why it is none."""
    network: Literal["none", "host"]
    """`none`: its own loopback and nothing else; our requests come through sockets handed out of the sandbox."""
    processes: Literal["own", "host"]
    """Whose processes it can see."""
    user: Literal["own", "mapped", "host"]
    """Own: an id that nobody else has. Mapped: an id of its own inside, ours outside. Host: ours."""
    memory_limit: Literal["cgroup", "watched"]
    """What ends it when it takes more host memory than its limit: the kernel at once, or we within a second."""
    process_limit: Literal["cgroup", "rlimit", "none"]
    release: str | None = None
    """Bubblewrap's version."""

    @property
    def words(self) -> tuple[str, str]:
        """In words, and by what means."""
        if self.kind == "none":
            return f"none: {self.reason}", "not scored officially"
        user = {"own": "a user of its own", "mapped": "a user of its own inside", "host": "our user"}[
            self.user
        ]
        means = f"bubblewrap {self.release} · memory {self.memory_limit}, processes {self.process_limit}"
        return f"no network, own processes, {user}", means
