"""The lines of a vLLM start-up log that its accounts are made of, found by their wording.

A line that must be there and is not is an EngineError that says which; nothing is ever taken for zero.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowbit_ray.errors import EngineError

__all__ = ["EngineStart", "find", "find_all", "number", "per_pod", "read_engine_start"]

START = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)")


@dataclass(frozen=True, slots=True)
class EngineStart:
    """What the engine-start line says of the configuration."""

    version: str
    speculative_config: str
    quantization: str
    kv_cache_dtype: str
    device: str
    tensor_parallel: int


def read_engine_start(log: str) -> EngineStart:
    """Reads the line `Initializing a V1 LLM engine (v…) with config: …`.

    Raises EngineError if it is missing, or if the model is spread in a way whose accounts cannot be summed.
    """
    match = find(log, START, "Initializing a V1 LLM engine (v…) with config: …")
    config = match["config"]
    for field in ("pipeline_parallel_size", "data_parallel_size"):
        if (size := _field(config, field, r"\d+")) != "1":
            raise EngineError(
                "the accounts of a model spread in this way are not known",
                where=f"start-up log: {field}",
                found=size,
                expected="1",
            )
    return EngineStart(
        version=match["version"],
        speculative_config=_field(config, "speculative_config", r".*?(?=, tokenizer=)"),
        quantization=_field(config, "quantization", r"[^,]+"),
        kv_cache_dtype=_field(config, "kv_cache_dtype", r"[^,]+"),
        device=_field(config, "device_config", r"[^,]+"),
        tensor_parallel=int(_field(config, "tensor_parallel_size", r"\d+")),
    )


def _field(config: str, name: str, value: str) -> str:
    match = re.search(rf"(?<![\w.]){name}=({value})", config)
    if match is None:
        raise EngineError("the engine-start line lacks a field", where=f"start-up log: {name}")
    return match[1]


def find(log: str, pattern: re.Pattern[str], wording: str) -> re.Match[str]:
    """The first match; EngineError with the line's wording if there is none."""
    match = pattern.search(log)
    if match is None:
        raise EngineError(
            "the start-up log lacks a line of the accounts",
            where="start-up log",
            expected=f"{wording!r}",
            remedy="On a GPU, vLLM 0.25 needs VLLM_LOGGING_LEVEL=DEBUG; none takes --kv-cache-memory-bytes.",
        )
    return match


def find_all(log: str, pattern: re.Pattern[str], wording: str) -> list[re.Match[str]]:
    """Every match, at least one; EngineError as `find`."""
    find(log, pattern, wording)
    return list(pattern.finditer(log))


def number(text: str, name: str) -> float:
    """A printed amount; EngineError if it is no number or negative."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise EngineError("an account is not an amount", where=f"start-up log: {name}", found=text)
    return value


def per_pod(values: list[float], ranks: int, name: str) -> float:
    """An amount of the whole pod from what its ranks printed.

    Each rank prints its own amount, or the first rank alone prints (vLLM's `info_once`), in which case the
    others hold as much: a tensor-parallel model is cut into equal parts. Any other count is an EngineError.
    """
    if len(values) == ranks:
        return sum(values)
    if len(values) == 1:
        return values[0] * ranks
    raise EngineError(
        "the accounts are not one line, nor one a rank",
        where=f"start-up log: {name}",
        found=f"{len(values)} lines",
        expected=f"1 or {ranks}",
    )
