"""The hidden material of one evaluation, prepared before a pod is held: prompts, probes, windows, items.

Timed prompts are drawn from a seed of the submission's own, a new one for each workload and repeat; what is
compared with the anchor's reusable results (KL probe, perplexity, accuracy) is drawn from a seed of the task's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lowbit_ray.measure.accuracy.items import Item, items_digest
from lowbit_ray.measure.accuracy.load_items import make_items
from lowbit_ray.measure.load import Prompt
from lowbit_ray.measure.prompts import (
    Pool,
    Tokenizer,
    cut_beginnings,
    cut_prompts,
    cut_windows,
    token_pool,
)
from lowbit_ray.measure.workload import WarmUp
from lowbit_ray.rules import Workload
from lowbit_ray.stages.build import Built, our_source
from lowbit_ray.stages.context import Evaluation

__all__ = ["Hidden", "prepare"]

WARM_UP_PASSES = 3
WARM_UP_SHARE, WARM_UP_LEAST = 8, 4
"""A pass takes an eighth of the requests in flight, at least four. Whole prompts at whole output length are what
kernels are compiled and tuned for; graphs of every batch size are captured before the engine answers. Passes of all
requests in flight would cost as much GPU time as the timed run itself."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What engines are asked; never in a log, a record or an error."""

    evaluation: Evaluation = field(repr=False)
    source: Path
    """The sealed source."""
    tokenizer: Tokenizer = field(repr=False)
    pool: Pool = field(repr=False)
    """Token ids of the task's hidden text."""
    probes: Sequence[Prompt] = field(repr=False)
    """Prompts of the KL probe."""
    windows: dict[str, Sequence[Prompt]] = field(repr=False)
    """Perplexity windows by name."""
    items: tuple[Item, ...] = field(repr=False)
    """Accuracy items of all pooled evaluations."""

    @property
    def vocabulary(self) -> int:
        """Token ids that the source's model knows are below this."""
        config = json.loads((self.source / "config.json").read_text())
        return int(config.get("vocab_size") or config["text_config"]["vocab_size"])

    @property
    def digest(self) -> str:
        """A fingerprint of what is the same for every submission: probes, windows and items.

        Other text under the same name, or a release that makes other items, is other material.
        """
        digest = hashlib.sha256(items_digest(self.items).encode())
        for name, texts in {"": self.probes, **self.windows}.items():
            digest.update(f"\0{name}\0{len(texts)}\0".encode())
            digest.update(np.asarray(texts, dtype=np.int64).tobytes())
        return digest.hexdigest()

    def timed(self, name: str, workload: Workload, repeat: int | str) -> tuple[Sequence[Prompt], WarmUp]:
        """Prompts of one timed run and others to warm up with, the same for candidate and anchor.

        Runs on one server share no beginning either, as far as the text allows: an engine that keeps prefixes
        would be taken for one that was asked before.
        """
        taken = self._taken_before(name, repeat)
        prompts = cut_prompts(*self._drawing(name, workload, repeat), taken=taken)
        extra = _warm_up_size(workload)
        return prompts[:-extra], WarmUp(prompts[-extra:], max_passes=WARM_UP_PASSES)

    def _drawing(self, name: str, workload: Workload, repeat: int | str) -> tuple[Pool, int, int, bytes]:
        """From what, how many, how long, by which seed."""
        count = workload.num_prompts + _warm_up_size(workload)
        return self.pool, count, workload.input_len, self.evaluation.seed("timed", name, f"r{repeat}")

    def _taken_before(self, name: str, repeat: int | str) -> set[tuple[int, ...]]:
        """Beginnings of the runs that a side's server has had before this one; a capped one has a server alone."""
        taken: set[tuple[int, ...]] = set()
        task, rules = self.evaluation.task, self.evaluation.rules
        for other, workload in task.timed_workloads(rules).items() if isinstance(repeat, int) else ():
            for number in range(task.timed_repeats(rules)):
                if (other, number) == (name, repeat):
                    return taken
                taken |= cut_beginnings(*self._drawing(other, workload, number), taken=taken)
        return taken


def _warm_up_size(workload: Workload) -> int:
    """Prompts of a pass."""
    return min(max(workload.max_concurrency // WARM_UP_SHARE, WARM_UP_LEAST), workload.max_concurrency)


def prepare(evaluation: Evaluation, built: Built) -> Hidden:
    """Reads the hidden text, tokenizes it with the source's tokenizer, and draws everything that is asked."""
    task, rules = evaluation.task, evaluation.rules
    with our_source(task.id):
        tokenizer = Tokenizer.of(built.source.path)
    cache = evaluation.settings.cache / "tokens"
    pool = token_pool(task.prompts, tokenizer, cache=cache)
    evaluations = task.pooled_evaluations(rules)
    return Hidden(
        evaluation=evaluation,
        source=built.source.path,
        tokenizer=tokenizer,
        pool=pool,
        probes=cut_prompts(pool, task.kl.sequences, task.kl.prompt_len, evaluation.task_seed("kl")),
        windows={
            name: cut_windows(
                token_pool(plan.source, tokenizer, cache=cache),
                plan.windows,
                plan.window_len,
                evaluation.task_seed("perplexity", name),
            )
            for name, plan in task.perplexity.items()
        },
        items=make_items(task.accuracy, evaluation.task_seed("accuracy"), evaluations=evaluations),
    )
