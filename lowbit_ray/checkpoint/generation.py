"""generation_config.json: defaults that a server applies to every request that does not set them.

vLLM takes them as its sampling defaults. Our requests set what they measure by, so a difference breaks nothing;
but a repetition penalty that only the candidate has would change its answers to everyone else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lowbit_ray.checkpoint.findings import Finding, show
from lowbit_ray.checkpoint.json_file import read_object

__all__ = ["compare_generation"]

FILE = "generation_config.json"
DEFAULTS = {
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "max_new_tokens": None,
    "eos_token_id": None,
}
"""What vLLM reads, and what the absence of each means."""


def compare_generation(source: Path, candidate: Path) -> Iterator[Finding]:
    """A note for each default that differs; CheckpointError when a file is there and cannot be read."""
    ours, theirs = (
        read_object(folder / FILE) if (folder / FILE).exists() else None for folder in (source, candidate)
    )
    if theirs is None:
        return
    for key, default in DEFAULTS.items():
        found, expected = theirs.get(key, default), (ours or {}).get(key, default)
        if found != expected and (ours is not None or key != "eos_token_id"):
            yield Finding(
                file=FILE,
                field=key,
                found=show(found),
                expected=show(expected),
                summary="a sampling default differs from the source",
                rule="execution",
                breaks=False,
            )
