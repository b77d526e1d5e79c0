"""The scales of a quantized KV cache: by which names engines find them, and whether each layer has its own.

vLLM ignores a scale whose name it does not expect and serves the layer with scale 1.0, without a word; so a
missing or misspelled one is found here or nowhere (names: the cache scale mapper in vLLM's
`quantization/base_config.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lowbit_ray.checkpoint.findings import Finding
from lowbit_ray.checkpoint.formats.scheme import KVScheme
from lowbit_ray.checkpoint.header import Headers, read_bytes
from lowbit_ray.checkpoint.names import Weight
from lowbit_ray.checkpoint.stored import Candidate

__all__ = ["check_calibration", "check_kv_scales"]

ONE = {"BF16": b"\x80\x3f", "F16": b"\x00\x3c", "F32": b"\x00\x00\x80\x3f"}
"""The number as it is stored."""
LARGEST_SCALE = 4096
"""Numbers: one a head, at most."""
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


def check_calibration(headers: Headers, kv: KVScheme | None) -> Iterable[Finding]:
    """Yields a note where every KV scale that is there is exactly 1: an export that was never calibrated.

    Only the values of such scales are read, a few bytes each.
    """
    if kv is None or kv.kind != "float" or kv.bits != 8:
        return
    endings = tuple(f".{suffix}" for suffixes in SUFFIXES.values() for suffix in suffixes)
    scales = [
        tensor
        for name, tensor in headers.tensors.items()
        if name.endswith(endings) and tensor.dtype in ONE and tensor.elements <= LARGEST_SCALE
    ]
    values = read_bytes(headers.folder, scales)
    if scales and all(data == ONE[tensor.dtype] * tensor.elements for tensor, data in values):
        yield Finding(
            file=scales[0].file,
            field=scales[0].name,
            found=f"1.0 in all of {len(scales)} scales",
            expected="scales from a calibration",
            summary="every scale of the KV cache is 1: it was not calibrated, and large keys or values are cut off",
            rule="companions",
            breaks=False,
        )


def _attention_modules(source: Mapping[str, Weight]) -> list[str]:
    """Modules that hold a k projection, in the order of the source."""
    found: dict[str, None] = {}
    for weight in source.values():
        parent, _, last = weight.module.rpartition(".")
        if last in ("k_proj", "qkv_proj") and weight.leaf == "weight" and weight.region != "vision":
            found[parent] = None
    return list(found)
