"""Small functions with unit tests: the expected values come from a reference next to the description.

A template may hold `{k}`, a small integer that is drawn; so one template makes several functions.
"""

from __future__ import annotations

from random import Random

from lowbit_ray.measure.accuracy.generate.draft import Draft, conversation
from lowbit_ray.measure.accuracy.generate.functions import TEMPLATES, Template
from lowbit_ray.measure.accuracy.items import CallCheck, UnitTestTarget

__all__ = ["draw_code"]

_SYSTEM = "You write Python. Reply with the code only."
_EXAMPLE = (
    "Write a Python function `half(x)` that returns x divided by 2.",
    "```python\ndef half(x):\n    return x / 2\n```",
)
_CHECKS = 4


def draw_code(rng: Random, level: int, context_tokens: int) -> Draft:
    """A function to write; `context_tokens` is ignored."""
    template = rng.choice(TEMPLATES[level])
    k = rng.randint(*template.k)
    name = template.name.format(k=k)
    returns = template.returns.format(k=k)
    question = f"Write a Python function `{name}({template.parameters})` that returns {returns}."
    return Draft(
        messages=conversation(_SYSTEM, *_EXAMPLE, question),
        target=UnitTestTarget(checks=_checks(rng, template, name, k)),
        fact=name,
    )


def _checks(rng: Random, template: Template, name: str, k: int) -> tuple[CallCheck, ...]:
    checks: dict[str, CallCheck] = {}
    # a template of few arguments may repeat a draw; the same call twice would check nothing new
    for _ in range(20 * _CHECKS):
        arguments = template.draw(rng)
        expression = f"{name}({', '.join(repr(argument) for argument in arguments)})"
        checks[expression] = CallCheck(
            expression=expression, expected=repr(template.reference(k, *arguments))
        )
        if len(checks) == _CHECKS:
            break
    return tuple(checks.values())
