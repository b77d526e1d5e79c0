"""An engine that looks around in its sandbox, prints what it found as JSON, and then serves.

python prisoner.py LEDGER CACHE
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from pathlib import Path

LEDGER, CACHE = map(Path, sys.argv[1:3])
MODEL = Path(os.environ["LOWBIT_MODEL_DIR"])
HERE = Path(__file__).parent


def reads() -> list[str]:
    found = []
    for path in (
        LEDGER,
        Path("/etc/shadow"),
        Path("/root", ".bashrc"),
        Path("/proc/1/environ"),
        Path("/proc/1/root/etc"),
    ):
        with contextlib.suppress(OSError):
            (path.iterdir() if path.is_dir() else iter([path.read_bytes()])).__next__()
            found.append(str(path))
    return found


def writes() -> list[str]:
    found = []
    for folder in (
        MODEL,
        HERE,
        CACHE,
        *map(Path, ("/", "/usr", "/etc", "/dev", "/sys", "/tmp", "/dev/shm")),
    ):
        with contextlib.suppress(OSError):
            (folder / "written").write_text("x")
            (folder / "written").unlink()
            found.append(str(folder))
    return sorted(found)


def mode_changes() -> list[str]:
    found = []
    for path in (MODEL / "config.json", HERE / "launch.sh", Path("/usr/bin/env")):
        with contextlib.suppress(OSError):
            path.chmod(0o777)
            found.append(str(path))
    return found


def connects() -> list[str]:
    """Addresses that anybody would try: a name server, the metadata service of a cloud, this host's own services."""
    found = []
    for address in ("1.1.1.1", "169.254.169.254", "10.0.0.1"):
        with contextlib.suppress(OSError), socket.create_connection((address, 80), timeout=0.5):
            found.append(address)
    return found


def main() -> None:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(
        json.dumps(
            {
                "reads": reads(),
                "writes": writes(),
                "mode_changes": mode_changes(),
                "connects": connects(),
                "processes": sorted(
                    int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()
                ),
                "own": [1, os.getpid()],
                "interfaces": [name for _, name in socket.if_nameindex()],
                "beside": sorted(path.name for path in LEDGER.parent.iterdir()),
                "capabilities": int(status["CapEff"], 16),
            }
        ),
        flush=True,
    )
    sys.argv[1:] = ["good"]
    import servers  # it reads its mode from the arguments

    servers.serve()


if __name__ == "__main__":
    main()
