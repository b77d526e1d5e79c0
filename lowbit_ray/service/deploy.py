"""The service on Ray Serve: `serve deploy cluster/serve.yaml`, which names `build` and its arguments.

Each replica builds the application for itself, with an index of its own that follows the ledger; a replica that
dies takes nothing with it. What is accepted is evaluated by `python -m jobs.dispatch`, a job of the same cluster.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import Field, ValidationError
from ray import serve
from ray.serve import Application

from lowbit_ray.errors import ConfigError
from lowbit_ray.rules import _Frozen

__all__ = ["Arguments", "build"]


class Arguments(_Frozen):
    """What serve.yaml may say under `args`; the rest comes from the nodes' LOWBIT_… variables."""

    ledger: str | None = None
    """LOWBIT_LEDGER where it is not given. Replicas on several nodes need one that all of them reach."""
    buckets: tuple[str, ...] | None = None
    """Buckets that participants may submit from; LOWBIT_BUCKETS where it is not given."""
    replicas: Annotated[int, Field(ge=1, le=64)] = 2
    cpus: Annotated[float, Field(ge=0, le=16)] = 0.5
    """Of Ray's, a replica."""
    in_flight: Annotated[int, Field(ge=1)] = 1024
    """Requests of a replica at once, its event streams among them."""
    follow_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Seconds between two looks at the ledger."""


def build(args: dict[str, Any]) -> Application:
    """The application for Ray Serve; ConfigError names an argument that is wrong."""
    try:
        arguments = Arguments.model_validate(args)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"serve.yaml: args.{'.'.join(map(str, first['loc']))}"
        raise ConfigError(f"the argument is not valid: {first['msg']}", where=where) from None

    def on_replica() -> FastAPI:
        return _app(arguments)

    deployment = serve.deployment(
        serve.ingress(on_replica)(),
        name="arena",
        num_replicas=arguments.replicas,
        max_ongoing_requests=arguments.in_flight,
        ray_actor_options={"num_cpus": arguments.cpus},
        health_check_timeout_s=60.0,  # a busy replica is not a dead one
        graceful_shutdown_timeout_s=5.0,  # readers of event streams connect again
    )
    application: Application = deployment.bind()
    return application


def _app(arguments: Arguments) -> FastAPI:
    from lowbit_ray.ledger import open_ledger
    from lowbit_ray.service.app import create_app
    from lowbit_ray.settings import Settings

    given = arguments.model_dump(include={"ledger", "buckets"}, exclude_none=True)
    settings = Settings(**given)
    return create_app(open_ledger(settings.ledger), settings, follow_s=arguments.follow_s)
