"""The public dev set: items of the five domains, generated from a seed.

The same seed gives the same items on every machine. Items of one domain are one long row; pooled evaluations
take one stretch of it after the other, so that they ask different questions.
"""

from __future__ import annotations

import hashlib
import hmac
from random import Random

from lowbit_ray.measure.accuracy.generate.code import draw_code
from lowbit_ray.measure.accuracy.generate.draft import Draft, Generator
from lowbit_ray.measure.accuracy.generate.instruction import draw_instruction
from lowbit_ray.measure.accuracy.generate.knowledge import draw_knowledge
from lowbit_ray.measure.accuracy.generate.maths import draw_maths
from lowbit_ray.measure.accuracy.generate.retrieval import draw_retrieval
from lowbit_ray.measure.accuracy.items import DomainName, Item

__all__ = ["LEVELS", "generate_items"]

LEVELS = (0, 0, 1, 0, 2, 0, 1, 2)
"""Difficulties by turns, so that few items hold the same mix as many: half easy, a quarter each above."""
_GENERATORS: dict[DomainName, Generator] = {
    "math": draw_maths,
    "code": draw_code,
    "knowledge": draw_knowledge,
    "instruction": draw_instruction,
    "retrieval": draw_retrieval,
}
_DRAWS = 100
"""Tries for an item that was not there before; after them the supply of its kind is used up: it repeats."""


def generate_items(
    domain: DomainName, seed: bytes, count: int, *, evaluation: int = 0, context_tokens: int = 512
) -> tuple[Item, ...]:
    """`count` items of a domain for the evaluation of that number (from 0).

    `context_tokens` is the approximate length of a retrieval item's text. An item that had to repeat shares
    the cluster of the first one.
    """
    generator = _GENERATORS[domain]
    rng = Random(hmac.digest(seed, f"accuracy dev set: {domain}".encode(), hashlib.sha256))
    seen: set[str] = set()
    first = evaluation * count
    items = []
    for index in range(first + count):
        level = LEVELS[index % len(LEVELS)]
        draft, fingerprint = _fresh(generator, rng, level, context_tokens, seen)
        seen.add(fingerprint)
        if index >= first:
            items.append(_item(domain, index, level, draft, fingerprint))
    return tuple(items)


def _fresh(
    generator: Generator, rng: Random, level: int, context_tokens: int, seen: set[str]
) -> tuple[Draft, str]:
    for _ in range(_DRAWS):
        draft = generator(rng, level, context_tokens)
        question = draft.fact or draft.messages[-1].content
        fingerprint = hashlib.sha256(question.encode()).hexdigest()[:16]
        if fingerprint not in seen:
            break
    return draft, fingerprint


def _item(domain: DomainName, index: int, level: int, draft: Draft, fingerprint: str) -> Item:
    return Item(
        id=f"{domain}-{index}",
        domain=domain,
        messages=draft.messages,
        target=draft.target,
        cluster=f"{domain}-{fingerprint}",
        chance=draft.chance,
        level=level,
    )
