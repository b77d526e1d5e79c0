"""KL(BF16 ‖ candidate) over the whole vocabulary with transformers: the other side of kl.py's cross-check.

    python benchmarks/full_vocabulary.py DTYPE ANCHOR CANDIDATE TEXTS.json OUT.npz

Both checkpoints are read from their files and run as vLLM's CPU build runs them: values between layers are of DTYPE
(bfloat16 or float32), sums are float32, and a W8A8 layer quantizes its input to int8 a token before an exact integer
product. Nothing is
shared with the served side but the checkpoints and the texts. Written are the KL at each position, and the top K of
both models for kl.py to compare.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

INT8 = 127
INT4_OFFSET, INT4_VALUES = 8, 8
"""Stored value of a 0, and values in a word (compressed-tensors `pack-quantized`)."""
EXACT = 2**24
"""float32 holds every whole number up to here."""


class Linear(nn.Module):
    """A linear layer of either checkpoint; sums in float32, one rounding at its end."""

    def __init__(self, tensors: dict[str, Tensor], name: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.scale: Tensor | None = None
        if f"{name}.weight_packed" in tensors:
            weight = unpacked(tensors, name).to(dtype)
        else:
            weight = tensors[f"{name}.weight"]
            if weight.dtype == torch.int8:
                self.scale = tensors[f"{name}.weight_scale"].float().flatten()
        self.weight = weight.float()

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None:
            return (x.float() @ self.weight.T).to(x.dtype)
        steps = x.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / INT8
        values = torch.round(x.float() * (1 / steps)).clamp(-INT8 - 1, INT8)  # as the kernel does, to the bit
        if values.abs().sum(dim=-1).max() * INT8 >= EXACT:
            raise SystemExit("an integer product may be larger than float32 can hold")
        product = values @ self.weight.T
        return (product * steps * self.scale).to(x.dtype)


def unpacked(tensors: dict[str, Tensor], name: str) -> Tensor:
    """[N, K] of int4 values in groups, times their scales: what a W4A16 kernel multiplies with."""
    words, scale = tensors[f"{name}.weight_packed"], tensors[f"{name}.weight_scale"].float()
    shifts = 4 * torch.arange(INT4_VALUES, dtype=torch.int64)
    values = (((words.to(torch.int64) & 0xFFFFFFFF)[..., None] >> shifts) & 15) - INT4_OFFSET
    groups = values.flatten(1).float().reshape(*scale.shape, -1)
    return (groups * scale[..., None]).flatten(1)


class Norm(nn.Module):
    """Root mean square norm in float32, rounded once."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = weight.float(), epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale * self.weight).to(x.dtype)


class GatedUnit(nn.Module):
    """down(silu(gate) · up), the product in float32."""

    def __init__(self, gate: Linear, up: Linear, down: Linear) -> None:
        super().__init__()
        self.gate, self.up, self.down = gate, up, down

    def forward(self, x: Tensor) -> Tensor:
        product = nn.functional.silu(self.gate(x).float()) * self.up(x).float()
        out: Tensor = self.down(product.to(x.dtype))
        return out


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Causal attention in float32."""
    out = nn.functional.scaled_dot_product_attention(
        query.float(),
        key.float(),
        value.float(),
        is_causal=True,
        scale=options["scaling"],
        enable_gqa=True,
    )
    return out.transpose(1, 2).contiguous().to(query.dtype), None


def load(folder: Path, dtype: torch.dtype) -> Callable[[list[int]], Tensor]:
    """The model of a checkpoint's folder: token ids → log-probabilities of the next token, float32 [T, V]."""
    config = transformers.AutoConfig.from_pretrained(folder)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    transformers.AttentionInterface.register("float32", attention)
    config._attn_implementation = "float32"
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    tensors = load_file(folder / "model.safetensors")
    decoder = model.model
    decoder.embed_tokens.weight = nn.Parameter(
        tensors["model.embed_tokens.weight"].to(dtype), requires_grad=False
    )
    decoder.rotary_emb = type(decoder.rotary_emb)(config)
    for number, layer in enumerate(decoder.layers):
        name = f"model.layers.{number}"
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, part, Linear(tensors, f"{name}.self_attn.{part}", dtype))
        parts = [Linear(tensors, f"{name}.mlp.{part}_proj", dtype) for part in ("gate", "up", "down")]
        layer.mlp = GatedUnit(*parts)
        for part in ("input_layernorm", "post_attention_layernorm"):
            setattr(layer, part, Norm(tensors[f"{name}.{part}.weight"], config.rms_norm_eps))
    decoder.norm = Norm(tensors["model.norm.weight"], config.rms_norm_eps)
    head = "lm_head" if "lm_head.weight" in tensors else "model.embed_tokens"
    model.lm_head = Linear(tensors, head, dtype)

    @torch.inference_mode()
    def logprobs(ids: list[int]) -> Tensor:
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        return torch.log_softmax(logits.float(), dim=-1)

    return logprobs


def divergence(p: Tensor, q: Tensor) -> NDArray[np.float64]:
    """KL at each position over all ids, nats, [T]."""
    wide_p, wide_q = p.double(), q.double()
    return (wide_p.exp() * (wide_p - wide_q)).sum(-1).numpy()


def main(arguments: list[str]) -> None:
    dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[arguments[0]]
    anchor, candidate, texts, out = map(Path, arguments[1:])
    asked = json.loads(texts.read_text())
    models = {"anchor": load(anchor, dtype), "candidate": load(candidate, dtype)}
    found: dict[str, list[NDArray[Any]]] = {"full": []}
    for tokens, start in zip(asked["texts"], asked["starts"], strict=True):
        sides = {name: model(tokens)[start - 1 : -1] for name, model in models.items()}
        found["full"].append(divergence(*sides.values()))
        for name, side in sides.items():
            top = side.topk(asked["top_k"], dim=-1)
            own = side.gather(1, torch.tensor(tokens[start:])[:, None]).flatten()
            for part, values in (("ids", top.indices), ("logprobs", top.values), ("actual", own)):
                found.setdefault(f"{name}_{part}", []).append(values.numpy())
    arrays = {name: np.concatenate(values) for name, values in found.items()}
    if not np.isfinite(arrays["full"]).all():
        raise SystemExit("a divergence is not finite")
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
