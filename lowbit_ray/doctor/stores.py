"""The doctor's look at what lies outside of the cluster: the ledger and the hub."""

from __future__ import annotations

import os
import secrets
import time

from lowbit_ray.doctor.finding import Finding
from lowbit_ray.engines.quarantine import list_quarantined
from lowbit_ray.ledger import open_ledger
from lowbit_ray.settings import Settings
from lowbit_ray.tasks import Task, list_tasks, load_task

__all__ = ["look_at_hub", "look_at_ledger", "look_at_quarantine"]

HUB = "https://huggingface.co"
TIMEOUT_S = 10.0
SLOW_S = 2.0


def look_at_ledger(settings: Settings) -> Finding:
    """Creates an object, refuses to create it again, swaps, reads and removes it; LedgerError where that fails."""
    ledger, key = open_ledger(settings.ledger), f"doctor/{secrets.token_hex(8)}"
    started = time.monotonic()
    if not ledger.create(key, b"one"):
        return _wrong(settings, "a key that nobody uses exists already")
    try:
        if ledger.create(key, b"two"):
            return _wrong(settings, "an object was created twice")
        entry = ledger.read(key)
        if entry is None or entry.data != b"one" or not ledger.swap(key, b"two", entry.version):
            return _wrong(settings, "an object could not be read and swapped")
        if ledger.swap(key, b"three", entry.version):
            return _wrong(settings, "an object was swapped against a version that had moved on")
    finally:
        last = ledger.read(key)
        removed = last is not None and ledger.remove(key, last.version)
    if not removed:
        return _wrong(settings, "an object could not be removed")
    seconds = time.monotonic() - started
    found = f"{settings.ledger}: create, read, swap, remove in {seconds:.2f} s"
    if seconds > SLOW_S:
        return Finding(
            what="ledger", level="warning", found=found, remedy="Take a store nearer to the cluster."
        )
    return Finding(what="ledger", level="good", found=found)


def _wrong(settings: Settings, what: str) -> Finding:
    return Finding(
        what="ledger",
        level="bad",
        found=f"{settings.ledger}: {what}",
        remedy="The store must create once and compare-and-swap: without it two evaluations could collide.",
    )


def look_at_quarantine(settings: Settings) -> list[Finding]:
    """Nodes that are out of service."""
    return [
        Finding(
            what="quarantine",
            level="warning",
            found=f"since {one.at:%Y-%m-%d %H:%M}: {one.reason} (found by {one.found_by})",
            remedy=f"Look at it, then: lowbit doctor --release {one.node[:12]}",
            where=f"{one.address} ({one.node[:8]})",
        )
        for one in list_quarantined(open_ledger(settings.ledger)).values()
    ]


def look_at_hub(settings: Settings) -> Finding:
    """Whether the hub answers, where a task needs it."""
    import httpx2

    needing = [name for name in list_tasks(settings.tasks) if _needs_hub(load_task(name, settings.tasks))]
    address = os.environ.get("HF_ENDPOINT", HUB)  # huggingface_hub's own variable
    if not needing:
        return Finding(what="hub", level="good", found="no task needs one")
    try:
        status = httpx2.get(f"{address}/api/models?limit=1", timeout=TIMEOUT_S).status_code
    except httpx2.HTTPError as error:
        status = 0
        reason = f"{address} does not answer: {type(error).__name__}"
    else:
        reason = f"{address} answers HTTP {status}"
    if status == 200:
        return Finding(what="hub", level="good", found=reason)
    return Finding(
        what="hub",
        level="warning",
        found=reason,
        remedy=f"{', '.join(needing)} cannot be evaluated. Set HF_ENDPOINT, open the way out to it, "
        "or give the task copies of its anchor and data.",
    )


def _needs_hub(task: Task) -> bool:
    sources = [task.prompts, *(plan.source for plan in task.perplexity.values())]
    sources += [domain.source for domain in task.accuracy.domains.values() if domain.source is not None]
    at_hub = task.anchor.path is None and task.anchor.package is None
    return at_hub or any(source.kind == "hub" for source in sources)
