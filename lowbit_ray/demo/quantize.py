"""Round-to-nearest quantization of a BF16 checkpoint into the compressed-tensors format, with numpy alone.

The demo's candidates come from here: W8A8 (int8 weights a channel, dynamic int8 activations a token) and W4A16
(int4 weights in groups, packed into int32). It is the plainest method there is, on purpose: what a participant
would improve upon. Layout: compressed-tensors `int-quantized` and `pack-quantized`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Literal

import ml_dtypes  # numpy's BF16, under the name that safetensors looks for
import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save_file

from lowbit_ray.errors import CheckpointError

__all__ = ["Scheme", "quantize"]

Scheme = Literal["w8a8", "w4a16"]
Floats = npt.NDArray[np.float32]
Arrays = dict[str, npt.NDArray[np.generic]]

GROUP = 32
"""Weights that share a scale in W4A16."""


def quantize(source: Path, target: Path, scheme: Scheme) -> Path:
    """Writes the quantized form of the BF16 checkpoint `source` to `target`; a finished `target` is kept.

    Every linear layer of the decoder is quantized; embeddings, norms and the head stay as they are. Raises
    CheckpointError where the source is not one BF16 safetensors file.
    """
    if target.is_dir():
        return target
    weights = source / "model.safetensors"
    if not weights.is_file():
        raise CheckpointError(
            "no such file", where=str(weights), expected="a checkpoint in one safetensors file"
        )
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for file in source.iterdir():
        if file.suffix in {".json", ".jinja"} and file.name != "config.json":
            shutil.copy(file, part / file.name)
    save_file(_tensors(weights, scheme), part / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = _config(scheme)
    (part / "config.json").write_text(json.dumps(config, indent=2))
    part.rename(target)
    return target


def _tensors(weights: Path, scheme: Scheme) -> Arrays:
    tensors: Arrays = {}
    with safe_open(weights, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118  # not a dict
            value = file.get_tensor(name)
            if value.dtype.name != "bfloat16":
                raise CheckpointError(
                    "a tensor is not BF16",
                    where=f"{weights.name}: {name}",
                    found=value.dtype,
                    expected="bfloat16",
                )
            if not name.endswith("_proj.weight"):
                tensors[name] = value
                continue
            module = name.removesuffix("weight")
            quantized = (
                _int8(value.astype(np.float32)) if scheme == "w8a8" else _int4(value.astype(np.float32))
            )
            tensors |= {module + part: array for part, array in quantized.items()}
    return tensors


def _int8(weight: Floats) -> Arrays:
    """[N, K] → int8 [N, K] and a float32 scale [N, 1], symmetric, absmax."""
    scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, np.finfo(np.float32).tiny)
    return {
        "weight": np.clip(np.rint(weight / scale), -127, 127).astype(np.int8),
        "weight_scale": scale.astype(np.float32),
    }


def _int4(weight: Floats) -> Arrays:
    """[N, K] → int32 [N, K/8] (eight values a word, offset by 8, lowest bits first) and scales [N, K/GROUP]."""
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // GROUP, GROUP)
    scale = np.maximum(np.abs(groups).max(axis=2, keepdims=True) / 7.5, np.finfo(np.float32).tiny)
    values = np.clip(np.rint(groups / scale), -8, 7).astype(np.int64).reshape(rows, columns // 8, 8) + 8
    words = (values << (4 * np.arange(8))).sum(axis=2).astype(np.uint32).view(np.int32)
    return {
        "weight_packed": words,
        "weight_scale": _bfloat16(scale.squeeze(2)),
        "weight_shape": np.array([rows, columns], dtype=np.int64),
    }


def _bfloat16(values: Floats) -> npt.NDArray[np.generic]:
    return values.astype(ml_dtypes.bfloat16)


def _config(scheme: Scheme) -> dict[str, object]:
    eight = scheme == "w8a8"
    weights = {
        "num_bits": 8 if eight else 4,
        "type": "int",
        "symmetric": True,
        "strategy": "channel" if eight else "group",
        "group_size": None if eight else GROUP,
        "dynamic": False,
        "observer": "minmax",
    }
    inputs = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    layout = "int-quantized" if eight else "pack-quantized"
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": inputs if eight else None,
                "output_activations": None,
                "format": layout,
            }
        },
    }
