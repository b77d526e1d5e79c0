"""The anchor's reusable part is asked for by one evaluation; others that need it at the same time go on meanwhile.

Whoever asks puts a claim beside it that holds as long as its lease does, so a claim needs no renewal and ends with
its holder, however that ends. Who finds a claim times its caps first, and asks for the part only before its last
server, which is the first that needs it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from lowbit_ray.engines.pod import Pod
from lowbit_ray.lease import read_lease
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.build import Built
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.reference import ask_anchor, load_anchor_part, store_anchor_part
from lowbit_ray.stages.serving import Server, serving

__all__ = ["ask_unless_claimed", "take_claim", "wait_until_asked"]

LOOK_S = 2.0
PATIENCE_S = 1800.0
"""After so long with a pod in hand it is quicker to ask oneself, whatever the other is doing."""


class Claim(_Frozen):
    """Who asks for the part."""

    submission: str
    holder: str
    """Of that submission's lease."""


def ask_unless_claimed(evaluation: Evaluation, server: Server, hidden: Hidden, key: str) -> None:
    """Asks the running anchor for the part, unless it is there or somebody else is asking."""
    if not _there(evaluation, hidden, key) and take_claim(evaluation, key):
        _ask(evaluation, server, hidden, key)


def wait_until_asked(evaluation: Evaluation, built: Built, pod: Pod, hidden: Hidden, key: str) -> None:
    """Waits for the part; where whoever was asking has died, an anchor is served once more and asked.

    No server may be running.
    """
    if _there(evaluation, hidden, key):
        return
    with evaluation.span(f"awaited-{pod.facts.name}"):
        ours = _wait(evaluation, hidden, key)
    if ours:
        with serving(evaluation, built, pod, "anchor", "anchor-again") as server:
            _ask(evaluation, server, hidden, key)


def _wait(evaluation: Evaluation, hidden: Hidden, key: str) -> bool:
    """Until it is there, False, or until it is this evaluation's to ask for, True."""
    deadline = time.monotonic() + PATIENCE_S
    while not _there(evaluation, hidden, key):
        if take_claim(evaluation, key) or time.monotonic() > deadline:
            return True
        evaluation.waiting("another evaluation asks it", what="the anchor's answers")
        time.sleep(LOOK_S)
    return False


def _ask(evaluation: Evaluation, server: Server, hidden: Hidden, key: str) -> None:
    if not _there(evaluation, hidden, key):  # it may have been finished before the claim was ours
        with evaluation.span(f"reusable-{server.pod.facts.name}"):
            store_anchor_part(evaluation.ledger, key, ask_anchor(evaluation, server, hidden))


def _there(evaluation: Evaluation, hidden: Hidden, key: str) -> bool:
    return load_anchor_part(evaluation.ledger, key, list(hidden.windows)) is not None


def take_claim(evaluation: Evaluation, key: str) -> bool:
    """Claims the part, unless another evaluation at work has; True where this one is to ask."""
    ledger, name = evaluation.ledger, f"{key}/claim.json"
    ours = Claim(submission=evaluation.submission.id, holder=evaluation.tenure.lease.holder)
    data = ours.model_dump_json().encode()
    entry = ledger.read(name)
    if entry is None:
        return ledger.create(name, data)
    claim = Claim.model_validate_json(entry.data)
    if claim == ours:
        return True
    lease = read_lease(ledger, claim.submission)
    if lease is not None and lease.holder == claim.holder and lease.held(datetime.now(UTC)):
        return False
    return ledger.swap(name, data, entry.version)
