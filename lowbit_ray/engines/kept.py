"""What an engine's cache holds when it has started is kept for its later servers, and nothing of what comes after.

    first server starts → its cache is copied aside → timed, and whatever it then writes is dropped
    each later server finds the copy

So compiled graphs and kernels need not be made again, and nothing that an engine learned from the requests it was
timed with reaches the server whose quality is measured. The copy is made inside a sandbox of its own by the
engine's own user: a link that it plants leads nowhere.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from lowbit_ray.checkpoint.sealed import discard
from lowbit_ray.engines.isolation import Enclosure
from lowbit_ray.engines.sandbox import Sandbox

__all__ = ["keep_cache", "restore_cache"]

COPY_S = 600.0


def restore_cache(wanted: Enclosure) -> None:
    """Before a server starts: the cache becomes what was kept, if something was."""
    kept = _kept(wanted)
    if not kept.is_dir():
        return
    discard(wanted.cache_dir)
    wanted.cache_dir.mkdir()
    _copy(kept, wanted.cache_dir, wanted)


def keep_cache(wanted: Enclosure) -> None:
    """When a server has started, before it is asked anything: keeps its cache, if none was kept before."""
    kept = _kept(wanted)
    if kept.is_dir():
        return
    partial = kept.with_name(f"{kept.name}.partial")
    discard(partial)
    partial.mkdir()
    _copy(wanted.cache_dir, partial, wanted)
    partial.rename(kept)


def _kept(wanted: Enclosure) -> Path:
    return wanted.cache_dir.with_name(f"{wanted.cache_dir.name}.kept")


def _copy(source: Path, target: Path, wanted: Enclosure) -> None:
    """As well as it can be done: a file that vanishes meanwhile is compiled again, which only costs its owner time."""
    with contextlib.closing(
        Sandbox(wanted.model_copy(update={"cache_dir": target}), model_dir=source, folder=source)
    ) as sandbox:
        door = sandbox.door.fileno()
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                sandbox.command(["cp", "-a", f"{source}/.", f"{target}/"]),
                pass_fds=(door,),
                env={"PATH": "/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=COPY_S,
            )
