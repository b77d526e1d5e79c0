"""A checkpoint's configuration files: config.json, and every place that may describe its quantization.

vLLM takes the first place that exists and never looks at the others; two that disagree would be one
checkpoint to us and another to the engine. So all are read, and `contract.py` requires them to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowbit_ray.checkpoint.json_file import read_object
from lowbit_ray.errors import CheckpointError

__all__ = ["KEYS", "LEGACY_FILES", "ModelConfig", "QuantizationSource", "read_config"]

KEYS = ("quantization_config", "compression_config")
"""Where config.json itself may hold it, in vLLM's order."""
LEGACY_FILES = (
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "quantization_config.json",
)
METHOD_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq", "quantization_config.json": "inc"}
"""The method a legacy file means that does not say so."""
_ALIASES = {"compressed_tensors": "compressed-tensors", "auto-round": "inc", "auto_round": "inc"}


@dataclass(frozen=True, slots=True)
class QuantizationSource:
    """One place that describes the quantization."""

    file: str
    field: str
    """Path inside the file, empty for the whole of it."""
    data: Mapping[str, Any]
    method: str
    """vLLM's name of the method, empty when the place does not say."""

    @property
    def where(self) -> str:
        return f"{self.file}: {self.field}" if self.field else self.file


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What a checkpoint's JSON files say."""

    folder: Path
    data: Mapping[str, Any]
    """config.json."""
    quantization: tuple[QuantizationSource, ...]
    """In the order in which vLLM would look; the first one counts."""

    @property
    def text(self) -> Mapping[str, Any]:
        """The language model's fields: text_config where there is one."""
        text = self.data.get("text_config")
        return text if isinstance(text, dict) else self.data

    def count(self, key: str) -> int | None:
        """A positive whole number of the language model, None when it is absent or none."""
        value = self.text.get(key)
        return value if type(value) is int and value > 0 else None


def read_config(folder: Path) -> ModelConfig:
    """Reads config.json and the quantization files beside it; CheckpointError names the file and field."""
    data = read_object(folder / "config.json")
    if not isinstance(data.get("text_config", {}), dict):
        raise CheckpointError("not an object", where="config.json: text_config")
    places: list[tuple[str, str, object]] = []
    places += [("config.json", "quantization_config", data.get("quantization_config"))]
    text = data.get("text_config") or {}
    places += [("config.json", f"text_config.{key}", text.get(key)) for key in KEYS]
    places += [("config.json", "compression_config", data.get("compression_config"))]
    for name in LEGACY_FILES:
        if (folder / name).exists():
            places.append((name, "", read_object(folder / name)))
    found = [_source(file, field, value) for file, field, value in places if value is not None]
    return ModelConfig(folder, data, tuple(found))


def _source(file: str, field: str, value: object) -> QuantizationSource:
    if not isinstance(value, dict):
        raise CheckpointError("not an object", where=f"{file}: {field}", found=type(value).__name__)
    method = _method(file, field, value)
    nested = value.get("quantization")
    if method.startswith("modelopt") and isinstance(nested, dict):
        value = {**{key: item for key, item in value.items() if key != "quantization"}, **nested}
    return QuantizationSource(file, field, value, method)


def _method(file: str, field: str, value: Mapping[str, Any]) -> str:
    """vLLM's name of the method that one place describes."""
    method = value.get("quant_method", "")
    if not isinstance(method, str):
        raise CheckpointError("not a text", where=f"{file}: {field}.quant_method", found=ascii(method)[:60])
    method = method.lower()
    producer = value.get("producer")
    nested = value.get("quantization")
    by_modelopt = isinstance(producer, dict) and producer.get("name") == "modelopt"
    if not method and (by_modelopt or (isinstance(nested, dict) and "quant_algo" in nested)):
        return "modelopt"
    if not method and "config_groups" in value:
        return "compressed-tensors"
    return _ALIASES.get(method, method) or METHOD_FILES.get(file, "")
