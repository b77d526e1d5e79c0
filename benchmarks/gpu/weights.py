"""Random weights of Qwen3's shape that behave like a trained model where quantization is concerned.

Every matrix is N(0, 0.02²), those that write into the residual stream divided by √(2·layers), so that activations
keep a realistic size. Plain random weights would have no opinion on the next token: the two best of 151,936 logits
lie closer together than FP8's noise, and greedy decoding of two precisions would part at once, as no trained
model's does. So the head is given one: each token t has a successor, whose row of the head gets a part along the
embedding of t. What arrives there has passed all layers, whose quantization noise turns the residual stream
and moves all logits; the margin of the successor is that of a trained model (probability about 0.6).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from benchmarks.gpu.words import Successors

__all__ = ["QWEN3_8B", "TINY", "Shape", "config_of", "make_head", "model_tensors"]

STD = 0.02
LOGIT_STD = 1.0
"""Of the logits of all tokens but the successor, in nats."""
MARGIN, MARGIN_STD = 0.5, 1.0
"""Logit of the successor beyond that of all other tokens together: mean and spread over tokens."""
CALIBRATION_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of the Qwen3 family."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    plain: int
    """Ids before the special tokens."""
    trained: int
    """Ids of the tokenizer that text becomes."""


QWEN3_8B = Shape(36, 4096, 12288, 32, 8, 128, 151_936, 151_643, 8192)
TINY = Shape(4, 256, 512, 4, 2, 64, 2048, 1900, 1024)


def config_of(shape: Shape) -> dict[str, object]:
    """config.json with the fields of Qwen3-8B's."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": shape.plain,
        "eos_token_id": shape.plain + 2,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": STD,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": 40960,
        "max_window_layers": shape.layers,
        "model_type": "qwen3",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocabulary,
    }


def model_tensors(
    shape: Shape, successor: Successors, device: str, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """Name and BF16 value of every tensor, on `device`, in the order of the file; the head comes last.

    The layers are run as they are made, on random tokens, to see how much of an embedding arrives at the head.
    """

    def draw(name: str, *size: int, std: float = STD) -> Tensor:
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:6], "big"))
        return (torch.randn(*size, generator=generator, device=device) * std).to(torch.bfloat16)

    embedding = draw("embedding", shape.vocabulary, shape.hidden, std=1.0)
    yield "model.embed_tokens.weight", embedding
    known = torch.tensor(sorted(successor), device=device)
    picked = known[
        torch.randint(len(known), (CALIBRATION_TOKENS,), generator=torch.Generator().manual_seed(seed))
    ]
    stream = embedding[picked].float()
    for layer in range(shape.layers):
        weights = _layer(shape, layer, draw)
        stream = _run_layer(shape, weights, stream)
        for name, value in weights.items():
            yield f"model.layers.{layer}.{name}.weight", value
    yield "model.norm.weight", torch.ones(shape.hidden, dtype=torch.bfloat16, device=device)
    arrives = _cosine(stream, embedding[picked].float())
    yield (
        "lm_head.weight",
        make_head(
            shape, embedding, successor, arrives, draw("head", shape.vocabulary, shape.hidden, std=1.0)
        ),
    )


def make_head(
    shape: Shape, embedding: Tensor, successor: Successors, arrives: float, noise: Tensor
) -> Tensor:
    """The head: noise for logits of LOGIT_STD, and each successor's row turned towards its predecessor's embedding.

    `arrives` is the cosine between the residual stream at the head and the embedding of the current token.
    """
    width = math.sqrt(shape.hidden)
    head = noise.float() * (LOGIT_STD / width)
    tokens = torch.tensor(sorted(successor), device=head.device)
    following = torch.tensor([successor[int(token)] for token in tokens.tolist()], device=head.device)
    others = math.log(shape.vocabulary) + LOGIT_STD**2 / 2
    spread = torch.randn(len(tokens), generator=torch.Generator().manual_seed(1)).to(head.device)
    wanted = others + MARGIN + MARGIN_STD * spread
    direction = torch.nn.functional.normalize(embedding[tokens].float(), dim=1)
    head[following] += (wanted / (width * arrives))[:, None] * direction
    return head.to(torch.bfloat16)


def _layer(shape: Shape, layer: int, draw) -> dict[str, Tensor]:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    into = STD / math.sqrt(2 * shape.layers)
    sizes = {
        "self_attn.q_proj": (queries, shape.hidden, STD),
        "self_attn.k_proj": (keys, shape.hidden, STD),
        "self_attn.v_proj": (keys, shape.hidden, STD),
        "self_attn.o_proj": (shape.hidden, queries, into),
        "mlp.gate_proj": (shape.intermediate, shape.hidden, STD),
        "mlp.up_proj": (shape.intermediate, shape.hidden, STD),
        "mlp.down_proj": (shape.hidden, shape.intermediate, into),
    }
    weights = {
        name: draw(f"{layer} {name}", rows, columns, std=std) for name, (rows, columns, std) in sizes.items()
    }
    ones = torch.ones(shape.hidden, dtype=torch.bfloat16, device=weights["mlp.up_proj"].device)
    norms = {"input_layernorm": ones, "post_attention_layernorm": ones}
    head = {f"self_attn.{letter}_norm": ones[:1].expand(shape.head_dim).contiguous() for letter in "qk"}
    return weights | norms | head


def _run_layer(shape: Shape, weights: dict[str, Tensor], stream: Tensor) -> Tensor:
    """One layer without rotary positions, which turn random queries and keys into others like them."""

    def linear(name: str, value: Tensor) -> Tensor:
        return value @ weights[name].float().T

    count = len(stream)
    inner = _normalized(stream)
    query, key, value = (
        linear(f"self_attn.{letter}_proj", inner).view(count, -1, shape.head_dim).transpose(0, 1)
        for letter in "qkv"
    )
    share = shape.heads // shape.kv_heads
    mixed = scaled_dot_product_attention(
        _normalized(query),
        _normalized(key).repeat_interleave(share, 0),
        value.repeat_interleave(share, 0),
        is_causal=True,
    )
    stream = stream + linear("self_attn.o_proj", mixed.transpose(0, 1).reshape(count, -1))
    inner = _normalized(stream)
    return stream + linear(
        "mlp.down_proj", silu(linear("mlp.gate_proj", inner)) * linear("mlp.up_proj", inner)
    )


def _normalized(value: Tensor) -> Tensor:
    return value * torch.rsqrt(value.square().mean(-1, keepdim=True) + 1e-6)


def _cosine(stream: Tensor, embedding: Tensor) -> float:
    """Mean over the later half of the tokens, which have a context."""
    later = slice(len(stream) // 2, None)
    return float(torch.nn.functional.cosine_similarity(stream[later], embedding[later], dim=1).mean())
