"""Weights of the source that a candidate holds in no form: one finding for each part that is wholly absent.

Exporters leave out what their own loader does not build, such as a prediction layer (`mtp`) or a vision tower; those
hundreds of tensors are one thing to mend.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from lowbit_ray.checkpoint.findings import Finding
from lowbit_ray.checkpoint.header import INDEX, Headers, Tensor
from lowbit_ray.checkpoint.names import Weight, canonical

__all__ = ["missing_findings"]

MAX_FILES = 3
"""Files of the source that a finding names."""


def missing_findings(
    gone: Sequence[Weight], weights: Mapping[str, Weight], source: Headers, candidate: Headers
) -> Iterator[Finding]:
    """A finding for each part of which every weight is in `gone`, and for each other weight of it.

    `weights` are all that the candidate has to hold, by name.
    """
    tensors = {canonical(name): tensor for name, tensor in source.tensors.items()}
    place = INDEX if (candidate.folder / INDEX).exists() else candidate.files[0]
    for part in _parts(gone, weights):
        originals = [tensors[weight.name] for weight in part if weight.name in tensors]
        yield _finding(place, part, originals)


def _parts(gone: Sequence[Weight], weights: Mapping[str, Weight]) -> Iterator[list[Weight]]:
    """The missing weights, together with those that share their largest wholly missing part."""
    whole = Counter(prefix for name in weights for prefix in _prefixes(name))
    lost = Counter(prefix for weight in gone for prefix in _prefixes(weight.name))
    parts: dict[str, list[Weight]] = {}
    for weight in gone:
        absent = (prefix for prefix in _prefixes(weight.name) if lost[prefix] == whole[prefix] > 1)
        parts.setdefault(next(absent, weight.name), []).append(weight)
    yield from parts.values()


def _prefixes(name: str) -> list[str]:
    """The parts that a weight belongs to, the largest first: `model.`, `model.layers.`, …"""
    words = name.split(".")
    return [".".join(words[:count]) + "." for count in range(1, len(words))]


def _finding(place: str, part: list[Weight], originals: list[Tensor]) -> Finding:
    files = sorted({tensor.file for tensor in originals})
    shown = ", ".join(files[:MAX_FILES]) + (", …" if len(files) > MAX_FILES else "")
    them = "it" if len(part) == 1 else "them"
    remedy = f"Copy {them} unchanged from the source ({shown}): docs/formats.md says how." if files else ""
    if len(part) == 1:
        return Finding(
            file=place,
            field=originals[0].name if originals else part[0].name,
            found="no tensor that could be it",
            expected=f"shape {list(part[0].shape)} in any form",
            summary="a weight of the source is missing",
            rule="source_weights",
            remedy=remedy,
        )
    names = [tensor.name for tensor in originals] or [weight.name for weight in part]
    return Finding(
        file=place,
        field=f"{_shared(names)}.*",
        found=f"none of its {len(part)} tensors",
        expected="all of them, in any form",
        summary="a part of the source is missing",
        rule="source_weights",
        remedy=remedy,
    )


def _shared(names: Sequence[str]) -> str:
    """The module that all of these tensors are part of."""
    levels = zip(*(name.split(".")[:-1] for name in names), strict=False)
    return ".".join(level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels))
