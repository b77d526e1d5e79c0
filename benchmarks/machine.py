"""What a figure was measured on: beside every result of load.py, relay.py and kl.py."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["machine"]


def machine(*packages: str) -> dict[str, Any]:
    """This machine now, with the releases of those of `packages` that are installed."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    found = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "kernel": platform.release(),
        **({"releases": {name: found[name] for name in packages if name in found}} if packages else {}),
    }
