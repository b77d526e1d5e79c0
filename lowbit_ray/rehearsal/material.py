"""What a rehearsal asks: the task's shapes, few of each, cut from the task's text by a seed of its own."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lowbit_ray.measure.accuracy.generate import generate_items
from lowbit_ray.measure.accuracy.items import Item
from lowbit_ray.measure.load import Prompt
from lowbit_ray.measure.prompts import Pool, Tokenizer, cut_prompts, token_pool
from lowbit_ray.rules import Rules, Workload
from lowbit_ray.tasks import Task

__all__ = ["Material"]

ITEMS = 2
"""Accuracy items of each domain."""
PROBES = 4
LEAST = 4
"""Requests of a workload, at least."""
TOKENS = 400_000
"""Of the text, at most: tokenizing all of it takes minutes."""


@dataclass(frozen=True, slots=True)
class Material:
    """Prompts, probes and items; not hidden, but drawn anew each time."""

    tokenizer: Tokenizer = field(repr=False)
    pool: Pool = field(repr=False)
    workloads: dict[str, Workload]
    """The task's, cut to as many requests as are in flight at once."""
    probes: Sequence[Prompt] = field(repr=False)
    items: tuple[Item, ...] = field(repr=False)

    @staticmethod
    def of(task: Task, rules: Rules, checkpoint: Path) -> Material:
        """Reads and tokenizes the task's text."""
        tokenizer = Tokenizer.of(checkpoint)
        pool = token_pool(task.prompts, tokenizer, limit=TOKENS)
        seed = secrets.token_bytes(16)
        items = [
            item
            for name, domain in task.accuracy.domains.items()
            for item in generate_items(
                name, seed, ITEMS, evaluation=0, context_tokens=min(domain.context_tokens, 512)
            )
        ]
        return Material(
            tokenizer=tokenizer,
            pool=pool,
            workloads={name: _few(one) for name, one in task.timed_workloads(rules).items()},
            probes=cut_prompts(pool, PROBES, task.kl.prompt_len, seed),
            items=tuple(items),
        )

    def fresh(self, count: int, length: int) -> list[Prompt]:
        """Prompts that were not asked before."""
        return list(cut_prompts(self.pool, count, length, secrets.token_bytes(16)))


def _few(workload: Workload) -> Workload:
    few = min(workload.num_prompts, max(LEAST, workload.max_concurrency))
    return workload.model_copy(update={"num_prompts": few})
