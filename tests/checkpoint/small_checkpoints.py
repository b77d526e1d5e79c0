"""Small checkpoints for tests: a two-layer source, and candidates of it in every format's layout.

Only headers are read by what is tested, so that tensors hold zeros and files may be sparse.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowbit_ray.checkpoint.header import DTYPE_BITS

Shape = tuple[int, ...]
Tensors = dict[str, tuple[str, Shape]]

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, VOCABULARY, LAYERS = 256, 512, 4, 2, 512, 2
HEAD_DIM = HIDDEN // HEADS


def header_bytes(entries: Mapping[str, Any]) -> bytes:
    """Length and JSON, as they stand at the start of a file."""
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def write_file(path: Path, tensors: Mapping[str, tuple[str, Shape]]) -> None:
    """A safetensors file whose tensors are zeros that take no disk space."""
    entries: dict[str, Any] = {}
    position = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * DTYPE_BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    head = header_bytes(entries)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + position)


def write_shards(folder: Path, tensors: Mapping[str, tuple[str, Shape]], count: int) -> None:
    """The same in several files with their index."""
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for number in range(count):
        file = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        part = {name: tensors[name] for name in names[number::count]}
        write_file(folder / file, part)
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def base_config(**changes: Any) -> dict[str, Any]:
    """The source's config.json, as transformers 4 writes it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": 2,
        **changes,
    }


def linear_shapes() -> dict[str, Shape]:
    """Module name → [rows, columns] of every linear layer."""
    kv = KV_HEADS * HEAD_DIM
    layer = {
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (kv, HIDDEN),
        "self_attn.v_proj": (kv, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    return {f"model.layers.{n}.{name}": shape for n in range(LAYERS) for name, shape in layer.items()}


def plain_tensors(dtype: str = "BF16", *, tied: bool = False) -> Tensors:
    """All tensors of the source."""
    tensors: Tensors = {"model.embed_tokens.weight": (dtype, (VOCABULARY, HIDDEN))}
    for name, shape in linear_shapes().items():
        tensors[f"{name}.weight"] = (dtype, shape)
    for n in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{n}.{norm}.weight"] = (dtype, (HIDDEN,))
    tensors["model.norm.weight"] = (dtype, (HIDDEN,))
    if not tied:
        tensors["lm_head.weight"] = (dtype, (VOCABULARY, HIDDEN))
    return tensors


def write_checkpoint(folder: Path, tensors: Tensors, config: dict[str, Any], **files: Any) -> Path:
    """A folder with config.json, model.safetensors and further JSON files (`name` for `name.json`)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    for name, data in files.items():
        (folder / f"{name}.json").write_text(json.dumps(data))
    return folder


def write_source(folder: Path, **changes: Any) -> Path:
    """The BF16 source."""
    return write_checkpoint(
        folder, plain_tensors(tied=changes.get("tie_word_embeddings", False)), base_config(**changes)
    )


@dataclass(frozen=True)
class Recipe:
    """One candidate: how its linear layers are stored, and what its config says.

    `parts` is one tensor a semicolon, `suffix dtype dimensions`; a dimension is a product of n (rows), k (columns)
    and numbers, divided by a number and rounded up: `weight_packed I32 n,k/8; weight_shape I64 2; input_scale F32`.
    """

    name: str
    parts: str | Callable[[str], str]
    """The same for every layer, or by module."""
    quantization: dict[str, Any]
    label: str
    group: int | None = None
    extra: Tensors = field(default_factory=dict)
    file: str = ""
    """A legacy file that holds the quantization config instead of config.json."""

    def tensors(self) -> Tensors:
        tensors = plain_tensors()
        for module, (rows, columns) in linear_shapes().items():
            del tensors[f"{module}.weight"]
            parts = self.parts if isinstance(self.parts, str) else self.parts(module)
            for suffix, part in parse_parts(parts, rows, columns).items():
                tensors[f"{module}.{suffix}"] = part
        return {**tensors, **self.extra}

    def config(self) -> dict[str, Any]:
        return base_config() if self.file else base_config(quantization_config=self.quantization)

    def write(self, folder: Path) -> Path:
        files = {self.file: self.quantization} if self.file else {}
        return write_checkpoint(folder, self.tensors(), self.config(), **files)


def parse_parts(text: str, rows: int, columns: int) -> dict[str, tuple[str, Shape]]:
    """The tensors of one layer; see Recipe."""
    found = {}
    for part in text.split(";"):
        suffix, dtype, *shape = part.split()
        dimensions = shape[0].split(",") if shape else []
        found[suffix] = (dtype, tuple(_dimension(text, rows, columns) for text in dimensions))
    return found


def _dimension(text: str, rows: int, columns: int) -> int:
    product, _, divisor = text.partition("/")
    factors = [{"n": rows, "k": columns}.get(factor) or int(factor) for factor in product.split("*")]
    return math.ceil(math.prod(factors) / int(divisor or 1))


def kv_scales(suffixes: tuple[str, str] = ("k_scale", "v_scale")) -> Tensors:
    """One scale of k and one of v for each attention layer."""
    return {f"model.layers.{n}.self_attn.{suffix}": ("F32", ()) for n in range(LAYERS) for suffix in suffixes}
