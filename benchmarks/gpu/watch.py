"""How busy each GPU is, sampled once a second from outside: held seconds that a GPU computes nothing are the cost."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

__all__ = ["GpuWatch", "busy_seconds"]

BUSY_PERCENT = 1
"""NVML's utilization: share of the last interval in which any kernel ran."""


class GpuWatch:
    """Appends one JSON line a second: {"at": unix seconds, "gpus": {uuid: [percent, used GiB]}}."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> GpuWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        handles = _handles()
        with self._path.open("a", buffering=1) as file:
            while handles and not self._done.wait(1.0):
                file.write(json.dumps({"at": round(time.time(), 1), "gpus": _sample(handles)}) + "\n")


def _handles() -> dict[str, Any]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, no library: nothing to watch
        return {}
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return {str(pynvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}


def _sample(handles: dict[str, Any]) -> dict[str, list[float]]:
    import pynvml

    found = {}
    for uuid, handle in handles.items():
        percent = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
        found[uuid] = [percent, round(pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30, 2)]
    return found


def busy_seconds(path: Path, uuid: str, start: float, end: float) -> float | None:
    """Seconds between two times in which the GPU ran kernels; None where it was not watched."""
    if not path.is_file():
        return None
    samples = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}}")]
    seen = [
        sample["gpus"][uuid][0]
        for sample in samples
        if start <= sample["at"] <= end and uuid in sample["gpus"]
    ]
    return float(sum(percent >= BUSY_PERCENT for percent in seen)) if seen else None
