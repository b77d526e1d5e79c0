"""The anchor's reusable part: probe distributions, noise floor, perplexity losses and accuracy answers.

Computed once for a task, vLLM release and kind of device, by the first evaluation that needs it, on the anchor's
server that is up anyway; kept in the ledger under a key that names everything it depends on.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from lowbit_ray.engines.actor import Progress
from lowbit_ray.ledger import Ledger
from lowbit_ray.measure.accuracy.answers import Answers, JudgedItem
from lowbit_ray.measure.accuracy.lm_eval import ask_harness
from lowbit_ray.measure.accuracy.run import collect_answers
from lowbit_ray.measure.endpoint import Endpoint
from lowbit_ray.measure.kl import KLResult, Reference, make_reference, measure_kl
from lowbit_ray.measure.load import Prompt
from lowbit_ray.measure.perplexity import AnchorLoss, anchor_loss
from lowbit_ray.rules import _Frozen
from lowbit_ray.stages.build import Built
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.hidden import Hidden
from lowbit_ray.stages.questions import Inquiry, inquire
from lowbit_ray.stages.serving import Server
from lowbit_ray.tasks import KLPlan

T = TypeVar("T")

__all__ = ["AnchorPart", "Spoken", "ask_anchor", "load_anchor_part", "reference_key"]


class Spoken(_Frozen):
    """The part of it that is JSON; hidden, as it holds answers."""

    answers: Answers
    floor: KLResult
    """The anchor's probe of itself."""
    harness: tuple[JudgedItem, ...] = ()
    """Outcomes of domains that lm-evaluation-harness asks."""


@dataclass(frozen=True, slots=True)
class AnchorPart:
    """All of it, in memory."""

    spoken: Spoken
    reference: Reference = field(repr=False)
    losses: dict[str, AnchorLoss] = field(repr=False)


def reference_key(evaluation: Evaluation, built: Built, hidden: Hidden, device: str, release: str) -> str:
    """Where in the ledger it lies: a digest of everything that the anchor's answers depend on."""
    task = evaluation.task
    parts = {
        "source": built.source.digest,
        "device": device,
        "release": release,
        "flags": evaluation.rules.engine_flags.model_dump(mode="json"),
        "task": task.model_dump(mode="json", include={"engine", "prompts", "kl", "perplexity", "accuracy"}),
        "seed": hashlib.sha256(evaluation.task_seed("reference")).hexdigest(),
        "asked": hidden.digest,
        "tensor_parallel": task.pod.tensor_parallel,
        "evaluations": evaluation.rules.gate.quality.evaluations_pooled,
    }
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
    return f"tasks/{task.id}/anchors/{digest}"


def ask_anchor(evaluation: Evaluation, server: Server, hidden: Hidden) -> AnchorPart:
    """Asks the running anchor for all of it."""
    task = evaluation.task
    timeout_s = task.engine.request_timeout_s
    reference, floor = server.ask(
        inquire(reference_and_floor, hidden.probes, task.kl, timeout_s=timeout_s),
        "KL probe of the anchor, and its noise floor",
    )
    losses = {
        name: server.ask(
            inquire(anchor_loss, windows, concurrency=task.kl.max_concurrency, timeout_s=timeout_s),
            f"perplexity of the anchor: {name}",
        )
        for name, windows in hidden.windows.items()
    }
    answers = server.ask(all_items(evaluation, hidden), "accuracy items of the anchor")
    harness = ask_harnesses(evaluation, server)
    return AnchorPart(Spoken(answers=answers, floor=floor, harness=harness), reference, losses)


async def reference_and_floor(
    anchor: Endpoint,
    prompts: Sequence[Prompt],
    plan: KLPlan,
    *,
    timeout_s: float,
    progress: Progress | None = None,
) -> tuple[Reference, KLResult]:
    """The anchor's part of the KL probe, and the probe of itself: the noise floor."""
    reference = await make_reference(anchor, prompts, plan, timeout_s=timeout_s, progress=progress)
    floor = await measure_kl(
        anchor, reference, concurrency=plan.max_concurrency, timeout_s=timeout_s, seed=1, progress=progress
    )
    return reference, floor


def all_items(evaluation: Evaluation, hidden: Hidden) -> Inquiry[Answers]:
    """All accuracy items; they are scored later, without the pod."""
    plan = evaluation.task.accuracy
    return inquire(
        collect_answers,
        hidden.items,
        plan,
        timeout_s=evaluation.task.engine.request_timeout_s,
        template_arguments=plan.chat_template_arguments,
    )


def ask_harnesses(evaluation: Evaluation, server: Server) -> tuple[JudgedItem, ...]:
    """The outcomes of all domains that lm-evaluation-harness asks, of the running side."""
    plan, found = evaluation.task.accuracy, list[JudgedItem]()
    for name, domain in plan.domains.items():
        if domain.lm_eval is not None:
            question = inquire(
                ask_harness,
                name,
                domain,
                command=evaluation.settings.lm_eval(),
                concurrency=plan.max_concurrency,
                timeout_s=evaluation.task.engine.request_timeout_s,
            )
            outcomes = server.ask(question, f"lm-evaluation-harness: {domain.lm_eval.task}")
            found += outcomes
    return tuple(found)


def store_anchor_part(ledger: Ledger, key: str, part: AnchorPart) -> None:
    """Stores the part unless it is there already. The JSON comes last: where it exists, the part is complete."""
    ledger.create(f"{key}/reference.npz", _saved(part.reference.save))
    for name, losses in part.losses.items():
        ledger.create(f"{key}/perplexity-{name}.npz", _saved(losses.save))
    ledger.create(f"{key}/spoken.json", part.spoken.model_dump_json().encode())


def load_anchor_part(ledger: Ledger, key: str, names: list[str]) -> AnchorPart | None:
    """What an earlier evaluation kept; None where there is nothing yet."""
    spoken = ledger.read(f"{key}/spoken.json")
    reference = ledger.read(f"{key}/reference.npz")
    losses = {name: ledger.read(f"{key}/perplexity-{name}.npz") for name in names}
    if spoken is None or reference is None:
        return None
    return AnchorPart(
        spoken=Spoken.model_validate_json(spoken.data),
        reference=_loaded(Reference.load, reference.data),
        losses={name: _loaded(AnchorLoss.load, entry.data) for name, entry in losses.items() if entry},
    )


def _saved(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.npz"
        save(path)
        return path.read_bytes()


def _loaded(load: Callable[[Path], T], data: bytes) -> T:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.npz"
        path.write_bytes(data)
        return load(path)
