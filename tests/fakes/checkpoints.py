"""Writes tiny checkpoint folders that the fake engine serves and the contract accepts.

A folder has a Llama's config.json, model.safetensors with every tensor of a LlamaForCausalLM, a byte-level
tokenizer.json, generation_config.json and fake.json (what the fake engine is told: see engine.py).
The candidate is plain BF16, or int8 per channel in the compressed-tensors layout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

try:
    from fakes.bigram import VOCABULARY
except ImportError:  # imported from beside engine.py
    from bigram import VOCABULARY  # type: ignore[no-redef]

__all__ = ["SPECIAL_TOKENS", "write_anchor", "write_candidate", "write_checkpoint"]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|spare|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 256,
    "eos_token_id": 256,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 192,
    "max_position_embeddings": 4096,
    "mlp_bias": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": VOCABULARY,
}
INT8_CONFIG: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "channel",
                "dynamic": False,
            },
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
            "output_activations": None,
        }
    },
}


def write_anchor(folder: Path, **fake: Any) -> Path:
    """A BF16 checkpoint whose fake engine is exact; `fake` goes into fake.json."""
    return write_checkpoint(folder, fake=fake)


def write_candidate(
    folder: Path, *, precision: Literal["bf16", "int8"] = "bf16", noise: float = 0.1, **fake: Any
) -> Path:
    """The anchor, perturbed by `noise`, in BF16 or as W8A8 int8."""
    return write_checkpoint(folder, precision=precision, fake={"noise": noise, **fake})


def write_checkpoint(
    folder: Path,
    *,
    precision: Literal["bf16", "int8"] = "bf16",
    config: Mapping[str, Any] | None = None,
    fake: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the folder; `config` overrides fields of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {**CONFIG, **(config or {})}
    weights = _llama_weights(fields)
    if precision == "int8":
        fields["quantization_config"] = INT8_CONFIG
        tensors = _int8(weights)
    else:
        tensors = {name: ("BF16", _bfloat16(array)) for name, array in weights.items()}
    _write_safetensors(folder / "model.safetensors", tensors)
    _write_json(folder / "config.json", fields)
    _write_json(folder / "generation_config.json", {"bos_token_id": 256, "eos_token_id": [256]})
    _write_json(folder / "fake.json", dict(fake or {}))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIAL_TOKENS[0],
            "bos_token": SPECIAL_TOKENS[0],
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1))


def _tokenizer() -> Tokenizer:
    """One token a byte (id = the byte), then the special tokens."""
    alphabet = _bytes_to_unicode()
    tokenizer = Tokenizer(models.BPE(vocab={alphabet[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return tokenizer


def _bytes_to_unicode() -> dict[int, str]:
    """GPT-2's printable stand-in for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return {byte: chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)}


def _llama_weights(config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "mlp.down_proj.weight": (hidden, inner),
            prefix + "mlp.gate_proj.weight": (inner, hidden),
            prefix + "mlp.up_proj.weight": (inner, hidden),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "self_attn.k_proj.weight": (keys, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, queries),
            prefix + "self_attn.q_proj.weight": (queries, hidden),
            prefix + "self_attn.v_proj.weight": (keys, hidden),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocabulary, hidden)
    generator = np.random.default_rng(1)
    return {
        name: np.ones(shape, np.float32) if "norm" in name else _normal(generator, shape)
        for name, shape in shapes.items()
    }


def _normal(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (0.02 * generator.standard_normal(shape)).astype(np.float32)


def _bfloat16(array: np.ndarray) -> np.ndarray:
    """The upper half of each float32."""
    return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _int8(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
    """Linear layers per output channel with a BF16 scale [out, 1]; the rest stays BF16."""
    tensors: dict[str, tuple[str, np.ndarray]] = {}
    for name, array in weights.items():
        if "_proj." in name:
            scale = np.abs(array).max(axis=1, keepdims=True) / 127
            tensors[name] = ("I8", np.rint(array / scale).astype(np.int8))
            tensors[name.replace(".weight", ".weight_scale")] = ("BF16", _bfloat16(scale))
        else:
            tensors[name] = ("BF16", _bfloat16(array))
    return tensors


def _write_safetensors(path: Path, tensors: Mapping[str, tuple[str, np.ndarray]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, array) in tensors.items():
        end = offset + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for _, array in tensors.values():
            file.write(array.tobytes())
