"""The scales of a quantized KV cache: by which names engines find them, and whether each layer has its own.

vLLM ignores a scale whose name it does not expect and serves the layer with scale 1.0, without a word; so a
missing or misspelled one is found here or nowhere (names: the cache scale mapper in vLLM's
`quantization/base_config.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lowbit_ray.checkpoint.findings import Finding
from lowbit_ray.checkpoint.formats.scheme import KVScheme
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.stored import Candidate

__all__ = ["check_kv_scales"]

ATTENTION = ("self_attn", "mixer", "attn", "attention")
SUFFIXES = {
    letter: (
        f"{letter}_proj.{letter}_scale",
        f"{letter}_proj.output_scale",
        f"{letter}_scale",
        f"attn.{letter}_scale",
        f"qkv_proj.{letter}_scale",
        f"qkqkv_proj.{letter}_scale",
        f"{letter}_cache.scale",
        "kv_scale",
    )
    for letter in "kv"
}
"""Where the scale of k and of v may stand, after the attention module's name."""
OTHERS = (
    "q_scale",
    "attn.q_scale",
    "q.scale",
    "q_proj.output_scale",
    "q_proj.q_scale",
    "prob_output_scale",
    "attn.prob_scale",
    *(f"{letter}_zero_point" for letter in "qkv"),
)


def check_kv_scales(
    source: Mapping[str, Weight], candidate: Candidate, kv: KVScheme | None
) -> Iterable[Finding]:
    """Marks every known KV scale as accounted for; yields what is missing."""
    layers = _attention_modules(source)
    missing: list[str] = []
    for module in layers:
        for suffix in OTHERS:
            if candidate.get(f"{module}.{suffix}") is not None:
                candidate.take(f"{module}.{suffix}")
        for letter, suffixes in SUFFIXES.items():
            present = [suffix for suffix in suffixes if candidate.get(f"{module}.{suffix}") is not None]
            for suffix in present:
                candidate.take(f"{module}.{suffix}")
            if not present:
                missing.append(f"{module}.{letter}_scale")
    if kv is None or kv.scales == "none" or not missing:
        return
    file, _, field = kv.where.partition(": ")
    wholly = len(missing) == 2 * len(layers)
    yield Finding(
        file=file,
        field=field,
        found=f"{len(missing)} of {2 * len(layers)} scales missing, the first {missing[0]}",
        expected="a k and a v scale in each attention layer",
        summary="the KV cache's scales are not there; engines serve such a layer with scale 1.0",
        rule="companions",
        breaks=kv.scales == "required" or not wholly,
    )


def _attention_modules(source: Mapping[str, Weight]) -> list[str]:
    """Modules that hold a k projection, in the order of the source."""
    found: dict[str, None] = {}
    for weight in source.values():
        parent, _, last = weight.module.rpartition(".")
        if last in ("k_proj", "qkv_proj") and weight.leaf == "weight" and weight.region != "vision":
            found[parent] = None
    return list(found)
