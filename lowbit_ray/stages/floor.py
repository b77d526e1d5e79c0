"""The task's noise floor as the ledger holds it, for the evaluations beside whose scores it is shown."""

from __future__ import annotations

from pydantic import ValidationError

from lowbit_ray.engines.accounts import Startup
from lowbit_ray.engines.host import Host
from lowbit_ray.errors import LedgerError
from lowbit_ray.ledger import Ledger
from lowbit_ray.measure.noise_floor import FloorRuns, Measurement, device_of

__all__ = ["floor_key", "measurement_of", "read_runs"]


def floor_key(task_id: str) -> str:
    """Where the ledger holds it."""
    return f"tasks/{task_id}/noise_floor.json"


def read_runs(ledger: Ledger, task_id: str) -> FloorRuns:
    """All evaluations of the anchor against itself, none where there were none."""
    entry = ledger.read(floor_key(task_id))
    if entry is None:
        return FloorRuns(task_id=task_id)
    try:
        return FloorRuns.model_validate_json(entry.data)
    except ValidationError as error:
        raise LedgerError(
            "a stored noise floor is not of this version",
            where=floor_key(task_id),
            found=error.errors(include_url=False, include_input=False)[0]["msg"],
            remedy="Remove the object and measure it again: python -m jobs.noise_floor TASK.",
        ) from None


def measurement_of(host: Host, startup: Startup | None, rules_version: str) -> Measurement:
    """How an evaluation was measured; `startup` is the anchor's."""
    release = startup.vllm_version if startup else "unknown"
    return Measurement(device=device_of(host), release=release, rules_version=rules_version)
