"""Serving one side on the pod: what to start, and whose fault it is when it fails."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from lowbit_ray.engines.accounts import Startup
from lowbit_ray.engines.actor import Started
from lowbit_ray.engines.cap import Cap
from lowbit_ray.engines.footprint import Footprint
from lowbit_ray.engines.isolation import Enclosure, Isolation
from lowbit_ray.engines.memory_limit import HeldBy
from lowbit_ray.engines.pod import CALL_S, Pod
from lowbit_ray.engines.spec import EngineSpec, launch_spec, vllm_spec
from lowbit_ray.errors import EngineAnswerError, EngineError, PodError
from lowbit_ray.progress import store_start_log
from lowbit_ray.settings import Settings
from lowbit_ray.stages.build import Built
from lowbit_ray.stages.context import Evaluation
from lowbit_ray.stages.questions import Inquiry
from lowbit_ray.tasks import Task

__all__ = ["Server", "Side", "enclosure", "serving"]

T = TypeVar("T")
Side = Literal["candidate", "anchor"]
UNLIMITED_GIB = 2.0**20
"""Our own vLLM is not limited."""
STOP_S = 600.0
"""Longest that the end of an engine may take, with all of its devices clean again."""


@dataclass(slots=True)
class Server:
    """One side on the pod. Its engine starts when it is first asked something, so that an evaluation whose steps
    an earlier attempt has finished starts nothing."""

    evaluation: Evaluation
    built: Built
    pod: Pod
    side: Side
    name: str
    cap: Cap | None
    start_s: float | None = None
    """Seconds from the start of the process to its first answer; None before it was started."""
    isolation: Isolation | None = None
    """What it is shut in by, on the engine track."""
    held_by: HeldBy | None = None
    """What keeps it within its cap; None without one, or before it was started."""

    @property
    def stored_gib(self) -> float:
        """Bytes of the checkpoint's tensors."""
        return (self.built.candidate if self.side == "candidate" else self.built.source).stored_gib

    def ask(self, question: Inquiry[T], what: str) -> T:
        """The answer to a question; its progress goes to whoever watches the evaluation."""
        answer: T = self._ask("ask", question, what)
        return answer

    def ask_watched(self, question: Inquiry[T], what: str) -> tuple[T, float]:
        """As `ask`, and the share of the host's CPUs that others used meanwhile."""
        answer: tuple[T, float] = self._ask("ask_watched", question, what)
        return answer

    def _ask(self, method: str, question: Inquiry[T], what: str) -> Any:
        """Within what is left of the time that the task gives one side for all of its answers."""
        self._ensure_started()
        spent = self.evaluation.answered_s
        left_s = max(0.0, 3600 * self.evaluation.task.limits.answering_hours - spent[self.side])
        started = time.monotonic()
        try:
            return self.pod.call(method, question, what, left_s, watch=self._watch, limit_s=left_s + CALL_S)
        finally:
            spent[self.side] += time.monotonic() - started

    def startup(self) -> tuple[Startup | None, str]:
        """The engine's own accounts, None where it keeps none, and all that it has printed."""
        self._ensure_started()
        release = self.evaluation.rules.vllm
        aliases = {release.package: release.release}
        try:
            told: tuple[Startup | None, str] = self.pod.call("startup", self.stored_gib, aliases)
        except EngineAnswerError:
            raise  # the server itself fails
        except EngineError as error:
            if self.side == "candidate" and self.built.engine is not None:
                raise  # their server pretends to keep vLLM's accounts
            raise _ours("the accounts of our vLLM cannot be read", error) from error
        return told

    def device_peak_gib(self) -> float:
        """Largest use of memory so far, by the device's own count."""
        self._ensure_started()
        peak: float = self.pod.call("device_peak_gib")
        return peak

    def footprint(self) -> Footprint:
        """What the engine's processes hold, have read and talk to now."""
        self._ensure_started()
        seen: Footprint = self.pod.call("footprint")
        return seen

    def start_log(self) -> str:
        """All that the engine has printed; asked before it is asked anything that is hidden."""
        self._ensure_started()
        log: str = self.pod.call("printed")
        return log

    def _ensure_started(self) -> None:
        if self.start_s is not None:
            return
        self.evaluation.watch.progress(f"starting the {self.side}'s engine", 0, 0)
        spec = _spec(self.evaluation, self.built, self.pod, self.side, self.cap)
        log = self.evaluation.folder("logs") / f"{self.name}.log"
        limit_s = spec.start_timeout_s + CALL_S
        try:
            started: Started = self.pod.call("start", spec, log, self.cap, watch=self._watch, limit_s=limit_s)
        finally:
            self._keep_start_log()
        self.start_s, self.isolation, self.held_by = started.start_s, started.isolation, started.held_by
        if self.side == "candidate":
            self.evaluation.isolation = started.isolation

    def _keep_start_log(self) -> None:
        """Puts the end of the start-up log into the ledger, for the participant.

        An engine of theirs could keep hidden prompts in its cache and print them at a later start: of it only the
        very first start is kept.
        """
        evaluation, attempt = self.evaluation, self.evaluation.tenure.lease.attempt
        theirs = self.side == "candidate" and self.built.engine is not None
        if theirs and (self.name != "timed" or attempt > 0):
            return
        with contextlib.suppress(PodError):  # lost with its log
            text: str = self.pod.call("start_log")
            store_start_log(evaluation.ledger, evaluation.submission.id, f"{self.name}-{attempt}", text)

    def _watch(self, state: dict[str, Any]) -> None:
        """Tells how far it is; LeaseHeld where the lease was lost, so that no pod is held for nothing."""
        self.evaluation.check_lease()
        if state:
            self.evaluation.watch.progress(state["what"], state["done"], state["total"])


@contextlib.contextmanager
def serving(
    evaluation: Evaluation, built: Built, pod: Pod, side: Side, name: str, *, cap: Cap | None = None
) -> Iterator[Server]:
    """One side, capped or not, until the block ends; its log is `name`.log.

    A fault of the anchor's server is ours, not the participant's: its EngineError becomes a PodError.
    """
    server = Server(evaluation, built, pod, side, name, cap)
    try:
        yield server
    except EngineError as error:
        if side == "candidate":
            raise
        raise _ours("the anchor's server failed", error) from error
    finally:
        if server.start_s is not None:
            pod.call("stop", limit_s=STOP_S)


def _ours(what: str, error: EngineError) -> PodError:
    return PodError(
        f"{what}: {error.summary}",
        where=error.where,
        found=error.found,
        expected=error.expected,
        remedy="Look at the engine's log; the participant is not charged.",
    )


def _spec(evaluation: Evaluation, built: Built, pod: Pod, side: Side, cap: Cap | None) -> EngineSpec:
    task, rules = evaluation.task, evaluation.rules
    checkpoint: Path = (built.candidate if side == "candidate" else built.source).path
    cache = _compile_cache(evaluation, built, pod, side)
    official = evaluation.submission.split == "test"
    shut_in = (
        None
        if built.engine is None
        else enclosure(task, evaluation.settings, cache, cap, foreign=side == "candidate", required=official)
    )
    if side == "candidate" and built.engine is not None:
        return launch_spec(
            built.engine.path,
            checkpoint,
            task=task,
            rules=rules,
            cap=cap,
            device_total_gib=pod.facts.total_gib,
            cache_dir=cache,
            gpus=pod.facts.gpus,
            python=Path(evaluation.settings.vllm()[0]),
            enclosure=shut_in,
        )
    return vllm_spec(
        checkpoint,
        task=task,
        rules=rules,
        vllm_command=evaluation.settings.vllm(),
        cap=cap,
        max_logprobs=task.kl.top_k,
        cache_dir=cache,
        tensor_parallel=task.pod.tensor_parallel,
        gpus=pod.facts.gpus,
        tokenizer_dir=built.source.path if side == "candidate" else None,
        enclosure=shut_in,
    )


def enclosure(
    task: Task, settings: Settings, cache: Path, cap: Cap | None, *, foreign: bool, required: bool
) -> Enclosure:
    """The sandbox of either side of the engine track; both are asked the same way, so that the ratio stays fair.

    On a CPU the memory of a host is what a cap limits, and the sandbox keeps it.
    """
    capped = cap.cap_gib if cap is not None and task.engine.device == "cpu" else task.pod.memory_gib
    paths = tuple(Path(word) for word in settings.vllm() if word.startswith("/"))
    return Enclosure(
        foreign=foreign,
        required=required,
        programs=paths[:1] if foreign else paths,
        cache_dir=cache,
        memory_gib=min(capped, task.pod.memory_gib) if foreign else UNLIMITED_GIB,
        processes=256 + 128 * task.pod.cpus,
    )


def _compile_cache(evaluation: Evaluation, built: Built, pod: Pod, side: Side) -> Path:
    """Where an engine keeps what it compiles: 70 of the 100 to 180 seconds of a first start.

    A candidate's is its submission's own. The anchor's is shared by all submissions of a pod, which only one of
    them holds at a time.
    """
    if side == "candidate":
        return evaluation.folder("cache", side)
    shared = evaluation.settings.cache / "anchors" / built.source.digest[:16] / pod.facts.name
    shared.mkdir(parents=True, exist_ok=True)
    os.utime(shared)  # room.py removes what nobody has used for long
    return shared
