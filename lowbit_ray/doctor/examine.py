"""All that the doctor looks at, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lowbit_ray.doctor.finding import Finding, examined
from lowbit_ray.doctor.host import look_at_host
from lowbit_ray.doctor.stores import look_at_hub, look_at_ledger, look_at_quarantine
from lowbit_ray.engines.quarantine import release
from lowbit_ray.journal import account, log_action
from lowbit_ray.ledger import open_ledger
from lowbit_ray.settings import Settings

__all__ = ["examine", "put_back"]


def examine(settings: Settings) -> Iterator[Finding]:
    """Each finding as soon as it is made."""
    from lowbit_ray.doctor.cluster import look_at_cluster  # here, as it needs Ray

    checks: list[tuple[str, Callable[[], Finding | list[Finding]]]] = [
        ("ledger", lambda: look_at_ledger(settings)),
        ("quarantine", lambda: look_at_quarantine(settings)),
        ("hub", lambda: look_at_hub(settings)),
        ("host", lambda: look_at_host(settings)),
        ("cluster", lambda: look_at_cluster(settings)),
    ]
    for what, check in checks:
        yield from examined(what, check)


def put_back(settings: Settings, node: str) -> list[Finding]:
    """Ends the quarantine of a node, by its id, the beginning of that, or its address."""
    ledger = open_ledger(settings.ledger)
    log_action(ledger, f"command line: {account()}", "quarantine ended", node)
    released = release(ledger, node)
    if not released:
        return [
            Finding(what="quarantine", level="bad", found=f"holds no node {node}", remedy="lowbit doctor")
        ]
    return [Finding(what="quarantine", level="good", found=f"{name} is back in service") for name in released]
