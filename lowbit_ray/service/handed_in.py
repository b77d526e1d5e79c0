"""What a participant hands in: its fields, and examples of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from lowbit_ray.service.addresses import REPOSITORY
from lowbit_ray.service.views import Shown

__all__ = ["EXAMPLES", "NewSubmission", "Words", "printable"]

COMMIT = "5f2c1d0e9b8a7f6e5d4c3b2a190817263544ab0c"


def printable(text: str) -> str:
    """The text; ValueError where it could act on a terminal that shows it."""
    if not text.isprintable():
        raise ValueError("must be printable characters on one line")
    return text


Words = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)]
Where = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(printable)]
Repository = Annotated[str, Field(pattern=f"^{REPOSITORY.pattern}$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Precision = Annotated[str, Field(pattern=r"^W[0-9.]{1,8}A[0-9.]{1,8}KV[0-9.]{1,8}$")]


class NewSubmission(Shown):
    """What a participant hands in; `repository` and `commit`, or `checkpoint`, say where it lies."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["repository", "commit"]}, {"required": ["checkpoint"]}]}
    )

    task: Annotated[str, Field(min_length=1, max_length=64, examples=["qwen3-8b"])]
    """A task of `GET /api/tasks`."""
    repository: Annotated[Repository | None, Field(examples=["owner/name"])] = None
    """A hub repository; its `commit` belongs to it."""
    commit: Annotated[Commit | None, Field(examples=[COMMIT])] = None
    """The commit, all 40 digits: a branch or a tag can move."""
    checkpoint: Annotated[Where | None, Field(examples=["s3://bucket/prefix", f"owner/name@{COMMIT}"])] = None
    """A folder of an allowed bucket, or `repository@commit` in one field."""
    engine: Annotated[Where | None, Field(examples=[f"owner/engine@{COMMIT}"])] = None
    """Where `launch.sh` lies, as `checkpoint`; the engine track alone has one."""
    track: Literal["checkpoint", "engine"] = "checkpoint"
    """`checkpoint`: served by the arena's vLLM. `engine`: by the participant's own server."""
    precision: Annotated[Precision | None, Field(examples=["W8A8KV8"])] = None
    """As declared; the bytes are read in any case."""
    split: Literal["dev", "test"] = "dev"
    """`test` is scored and public; few a task."""
    method: Annotated[Words, Field(examples=["FP8 weights and activations, calibrated KV"])]
    """What it is, in a few words."""
    agent: Words | None = None
    """Who acts for the participant, where that is somebody else."""
    reference: bool = False
    """Organizers alone: shown on the board without a rank or a cost."""


EXAMPLES: dict[str, Any] = {
    "a hub repository": {
        "value": {
            "task": "qwen3-8b",
            "repository": "owner/name",
            "commit": COMMIT,
            "precision": "W8A8KV8",
            "split": "test",
            "method": "FP8 weights and activations, calibrated KV",
        }
    },
    "a bucket": {
        "value": {"task": "qwen3-8b", "checkpoint": "s3://bucket/prefix", "method": "round to nearest, int4"}
    },
    "the engine track": {
        "value": {
            "task": "qwen3-8b",
            "track": "engine",
            "checkpoint": f"owner/name@{COMMIT}",
            "engine": f"owner/engine@{COMMIT}",
            "method": "our own kernels",
        }
    },
}
"""Bodies that are taken, for the API's description."""
