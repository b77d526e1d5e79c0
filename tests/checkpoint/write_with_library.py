"""A program: writes small checkpoints through compressed-tensors' own compressors, and its presets as JSON.

It runs as a process of its own, since importing torch warns, and takes seconds that one run shares.

    python write_with_library.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.config import CompressionFormat
from compressed_tensors.quantization.quant_args import QuantizationArgs
from compressed_tensors.quantization.quant_scheme import (
    PRESET_SCHEMES,
    QuantizationScheme,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file
from small_checkpoints import base_config, linear_shapes, plain_tensors

State = dict[str, torch.Tensor]

PRESETS = {
    "W8A8": "int-quantized",
    "W4A16": "pack-quantized",
    "W4A16_ASYM": "pack-quantized",
    "W8A16": "pack-quantized",
    "FP8": "float-quantized",
    "FP8_DYNAMIC": "float-quantized",
    "FP8_BLOCK": "float-quantized",
    "NVFP4": "nvfp4-pack-quantized",
    "NVFP4A16": "nvfp4-pack-quantized",
    "MXFP4": "mxfp4-pack-quantized",
    "MXFP8": "mxfp8-quantized",
}


def scales(weight: torch.Tensor, args: QuantizationArgs) -> State:
    """Scales and zero points of a weight by the library's own rule, shaped by the strategy."""
    rows, columns = weight.shape
    if args.strategy in ("group", "tensor_group"):
        parts, dims = weight.reshape(rows, columns // args.group_size, args.group_size), (2,)
    elif args.strategy == "block":
        high, wide = args.block_structure
        parts, dims = weight.reshape(rows // high, high, columns // wide, wide).transpose(1, 2), (2, 3)
    else:
        parts, dims = weight, (1,) if args.strategy == "channel" else (0, 1)
    least, most = parts.amin(dims), parts.amax(dims)
    if args.strategy == "channel":
        least, most = least[:, None], most[:, None]
    state: State = {}
    if args.strategy == "tensor_group":
        state["weight_global_scale"] = 448.0 * 6.0 / weight.abs().max().reshape(1).float()
    scale, zero = calculate_qparams(least, most, args, state.get("weight_global_scale"))
    return {**state, "weight_scale": scale, "weight_zero_point": zero}


def compress(module: str, shape: tuple[int, ...], scheme: QuantizationScheme, format_: str) -> State:
    """One layer of random weights, compressed by the library."""
    weight = torch.randn(*shape).to(torch.bfloat16)
    local = {"weight": weight, **scales(weight, scheme.weights)}
    inputs = scheme.input_activations
    if inputs is not None and inputs.strategy == "tensor_group":
        local["input_global_scale"] = torch.ones(1)
    elif inputs is not None and inputs.dynamic is False:
        local["input_scale"] = torch.ones(1)
    compressor = BaseCompressor.get_value_from_registry(format_)
    return {
        f"{module}.{name}": value.contiguous() for name, value in compressor.compress(local, scheme).items()
    }


def config(scheme: QuantizationScheme, format_: str) -> dict[str, Any]:
    group = json.loads(scheme.model_dump_json())
    head = {"quant_method": "compressed-tensors", "format": format_, "quantization_status": "compressed"}
    return base_config(
        quantization_config={**head, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    )


def write(folder: Path, state: State, settings: dict[str, Any]) -> None:
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(settings))


def main(folder: Path) -> None:
    torch.manual_seed(0)
    shapes = linear_shapes()
    rest = {
        name: torch.zeros(*shape, dtype=torch.bfloat16)
        for name, (_, shape) in plain_tensors().items()
        if name.removesuffix(".weight") not in shapes
    }
    for preset, format_ in PRESETS.items():
        scheme = preset_name_to_scheme(preset, ["Linear"])
        state = dict(rest)
        for module, shape in shapes.items():
            state |= compress(module, shape, scheme, format_)
        write(folder / preset, state, config(scheme, format_))
    for bits in range(2, 9):
        args = QuantizationArgs(num_bits=bits, type="int", strategy="group", group_size=64)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        state = compress("model.layers.0.mlp.up_proj", (96, 320), scheme, "pack-quantized")
        write(folder / f"int{bits}", state, config(scheme, "pack-quantized"))
    presets = {
        name: {side: args.model_dump(mode="json") for side, args in scheme.items()}
        for name, scheme in PRESET_SCHEMES.items()
    }
    formats = [member.value for member in CompressionFormat]
    (folder / "library.json").write_text(json.dumps({"presets": presets, "formats": formats}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
