"""What is asked of an engine on a pod: any measurement with its arguments, made here and carried out there.

A measurement is a coroutine function of an endpoint. Its arguments carry hidden prompts to the pod, so they stay out
of `repr`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Concatenate, Generic, ParamSpec, TypeVar

from lowbit_ray.engines.actor import Progress
from lowbit_ray.measure.endpoint import Endpoint

__all__ = ["Inquiry", "inquire"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inquiry(Generic[T]):
    """One measurement; picklable, as it travels from the driver to the pod."""

    measure: Callable[..., Awaitable[T]]
    """A function of a module."""
    arguments: tuple[object, ...] = field(repr=False)
    """Those after the endpoint."""
    named: Mapping[str, object] = field(repr=False)

    async def __call__(self, endpoint: Endpoint, progress: Progress) -> T:
        """Measures; a measurement that knows `progress` tells how far it is."""
        told = {"progress": progress} if "progress" in inspect.signature(self.measure).parameters else {}
        return await self.measure(endpoint, *self.arguments, **self.named, **told)


def inquire(
    measure: Callable[Concatenate[Endpoint, P], Awaitable[T]], *arguments: P.args, **named: P.kwargs
) -> Inquiry[T]:
    """`measure` with all of its arguments but the endpoint and `progress`."""
    return Inquiry(measure, arguments, named)
