"""All items of an evaluation: each domain generated from the seed, or drawn from its data set by the seed."""

from __future__ import annotations

import hashlib
import hmac
from random import Random

from lowbit_ray.errors import ConfigError
from lowbit_ray.measure.accuracy.data_files import read_rows
from lowbit_ray.measure.accuracy.generate import generate_items
from lowbit_ray.measure.accuracy.items import DomainName, Item
from lowbit_ray.measure.accuracy.rows import read_row
from lowbit_ray.tasks import AccuracyPlan, Domain

__all__ = ["load_domain", "make_items"]


def make_items(plan: AccuracyPlan, seed: bytes, *, evaluations: int) -> tuple[Item, ...]:
    """The items of all domains, for as many evaluations as are pooled; the same seed gives the same items.

    Both sides of a comparison must get the same seed. Raises ConfigError and FetchError as `load_domain`.
    """
    items: list[Item] = []
    for name, domain in plan.domains.items():
        if domain.lm_eval is not None:
            continue  # the harness has items of its own
        if domain.source is None:
            for evaluation in range(evaluations):
                items += generate_items(
                    name, seed, domain.items, evaluation=evaluation, context_tokens=domain.context_tokens
                )
        else:
            items += load_domain(name, domain, seed, evaluations=evaluations)
    return tuple(items)


def load_domain(name: DomainName, domain: Domain, seed: bytes, *, evaluations: int) -> tuple[Item, ...]:
    """Items of a data set, `domain.items` an evaluation.

    The seed orders the rows; evaluations take one stretch of that order after the other, and a new order when
    no whole stretch is left. Every row is checked, drawn or not. Raises ConfigError where the source holds
    too few rows or a row cannot be read (row and field are named, the content never), FetchError where it is
    not delivered.
    """
    assert domain.source is not None
    where = domain.source.path or domain.source.kind
    rows = read_rows(domain.source)
    stretches = len(rows) // domain.items
    if stretches == 0:
        raise ConfigError(
            "too few rows for one evaluation",
            where=f"{where}: accuracy domain {name}",
            found=len(rows),
            expected=f"at least {domain.items}",
            remedy="Lower the domain's items in the task's file.",
        )
    read = [
        read_row(row, number=number, domain=name, item_id=f"{name}-row-{number}", where=where)
        for number, row in enumerate(rows)
    ]
    items = []
    for evaluation in range(evaluations):
        order = list(range(len(read)))
        Random(_key(seed, name, evaluation // stretches)).shuffle(order)
        first = evaluation % stretches * domain.items
        for place, row in enumerate(order[first : first + domain.items]):
            items.append(read[row].model_copy(update={"id": f"{name}-{evaluation * domain.items + place}"}))
    return tuple(items)


def _key(seed: bytes, name: str, order: int) -> bytes:
    return hmac.digest(seed, f"accuracy rows: {name} {order}".encode(), hashlib.sha256)
