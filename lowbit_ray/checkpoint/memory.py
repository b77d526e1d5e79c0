"""What a checkpoint will hold on the device, before any GPU is used: weights, KV by workload, and the gain.

KV of a workload = requests in flight × (input + output tokens, rounded up to blocks) × bytes a token, plus,
in hybrid models, each request's recurrent states. A token's bytes are 2 · layers · KV heads · head size ·
bits / 8 over the layers of full attention. vLLM makes a page of a hybrid's attention as large as a state's,
so that its blocks are hundreds of tokens (Qwen3.5-27B in BF16: 784, as measured). Activations, graphs and the
runtime come on top of both sides and are not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from lowbit_ray.checkpoint.config import ModelConfig
from lowbit_ray.checkpoint.header import Headers
from lowbit_ray.checkpoint.names import canonical
from lowbit_ray.rules import Rules, Workload, _Frozen
from lowbit_ray.tasks import Task

__all__ = ["ExpectedMemory", "KVShape", "WorkloadMemory", "expect_memory", "kv_shape", "loaded_bytes"]

BLOCK = 16
"""Tokens of a KV block in vLLM."""
VISION = ("model.visual.", "model.vision_tower.", "vision_tower.", "model.multi_modal_projector.")
DRAFT = ("mtp.", "model.mtp.")
"""Layers of multi-token prediction, which are loaded for speculative decoding only."""
DEVICE_GIB = {"H200": 139.8}
"""Memory by Ray's accelerator type, as CUDA reports it; a KV pool cannot be larger."""


class WorkloadMemory(_Frozen):
    """One workload, both sides."""

    anchor_kv_gib: float
    kv_gib: float
    anchor_peak_gib: float
    """Weights + KV."""
    peak_gib: float
    gain: float
    """anchor_peak_gib / peak_gib."""


class ExpectedMemory(_Frozen):
    """An estimate from the shapes alone."""

    anchor_weights_gib: float
    weights_gib: float
    """Bytes of the tensors an engine loads for this task / 2^30."""
    anchor_kv_bytes_per_token: float
    kv_bytes_per_token: float
    state_mib_per_request: float
    """Recurrent states of a hybrid model; 0 without any."""
    workloads: dict[str, WorkloadMemory]
    gain: float
    """Geometric mean over the workloads."""
    leaves_out: str = "activations, CUDA graphs and the runtime's own memory"


@dataclass(frozen=True, slots=True)
class KVShape:
    """How much a request holds beside the weights."""

    layers: int
    """Layers of full attention."""
    elements: int
    """KV elements a token and layer."""
    windowed: int
    """Layers of sliding-window attention."""
    window: int
    """Tokens such a layer keeps."""
    linear: int
    """Layers of linear attention."""
    state_bytes: int
    """Recurrent state of one of them."""

    def bytes_per_token(self, bits: float) -> float:
        return (self.layers + self.windowed) * self.elements * bits / 8

    def request_bytes(self, tokens: int, bits: float) -> float:
        """All that one request of `tokens` tokens holds."""
        block = self.block_tokens(bits)
        page = self.elements * bits / 8
        full = self.layers * math.ceil(tokens / block) * block * page
        windowed = self.windowed * math.ceil(min(tokens, self.window) / block) * block * page
        # the state's page is as large as an attention block's
        return full + windowed + self.linear * max(self.state_bytes, block * page if self.linear else 0)

    def block_tokens(self, bits: float) -> int:
        """Tokens of a block: 16, or in a hybrid as many as a state is large."""
        if not self.linear or not self.layers:
            return BLOCK
        return max(math.ceil(self.state_bytes / (self.elements * bits / 8) / BLOCK) * BLOCK, BLOCK)


def kv_shape(config: ModelConfig) -> KVShape | None:
    """The shape of the model's KV cache, None when the configuration does not tell."""
    layers, heads = config.count("num_hidden_layers"), config.count("num_attention_heads")
    hidden = config.count("hidden_size")
    if layers is None or heads is None or hidden is None or layers > 10_000:
        return None
    head_dim = config.count("head_dim") or hidden // heads
    elements = 2 * (config.count("num_key_value_heads") or heads) * head_dim
    kinds = _layer_types(config, layers)
    return KVShape(
        layers=kinds.count("full_attention"),
        elements=elements,
        windowed=kinds.count("sliding_attention"),
        window=config.count("sliding_window") or 2**31,
        linear=kinds.count("linear_attention"),
        state_bytes=_state_bytes(config.text),
    )


def _layer_types(config: ModelConfig, layers: int) -> list[str]:
    listed = config.text.get("layer_types")
    if isinstance(listed, list) and len(listed) == layers:
        return [kind if isinstance(kind, str) else "full_attention" for kind in listed]
    interval = config.count("full_attention_interval")
    if interval and "linear_num_value_heads" in config.text:
        return ["linear_attention" if (layer + 1) % interval else "full_attention" for layer in range(layers)]
    return ["full_attention"] * layers


def _state_bytes(text: Mapping[str, Any]) -> int:
    """State of one Gated DeltaNet layer: its matrices in float32, its convolution's tail in BF16."""
    names = ("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim", "conv_kernel_dim")
    sizes = [value for name in names if type(value := text.get(f"linear_{name}")) is int and value > 0]
    if len(sizes) < len(names):
        return 0
    key_heads, key_dim, value_heads, value_dim, kernel = sizes
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    return value_heads * key_dim * value_dim * 4 + channels * (kernel - 1) * 2


def loaded_bytes(headers: Headers, *, vision: bool) -> int:
    """Bytes of the tensors that an engine loads: no draft layers, and the vision tower only if asked."""
    skipped = DRAFT if vision else DRAFT + VISION
    return sum(
        tensor.nbytes for tensor in headers.tensors.values() if not canonical(tensor.name).startswith(skipped)
    )


def expect_memory(
    source: tuple[Headers, ModelConfig], candidate: Headers, kv_bits: float, task: Task, rules: Rules
) -> ExpectedMemory | None:
    """The estimate for each of the task's workloads; None when the model's KV shape is not known."""
    headers, config = source
    shape = kv_shape(config)
    if shape is None:
        return None
    vision = "--language-model-only" not in task.engine.extra_args
    anchor, ours = (loaded_bytes(part, vision=vision) / 2**30 for part in (headers, candidate))
    limit = DEVICE_GIB.get(task.pod.accelerator or "", math.inf) * max(task.pod.tensor_parallel, 1)
    usable = limit * rules.engine_flags.gpu_memory_utilization
    most = task.engine.max_num_seqs or rules.engine_flags.max_num_seqs

    def one(workload: Workload) -> WorkloadMemory:
        running = min(workload.max_concurrency, workload.num_prompts, most)
        tokens = workload.input_len + workload.output_len
        kvs = [running * shape.request_bytes(tokens, bits) / 2**30 for bits in (16, kv_bits)]
        kvs = [min(kv, max(usable - weights, 0)) for kv, weights in zip(kvs, (anchor, ours), strict=True)]
        peaks = anchor + kvs[0], ours + kvs[1]
        return WorkloadMemory(
            anchor_kv_gib=kvs[0],
            kv_gib=kvs[1],
            anchor_peak_gib=peaks[0],
            peak_gib=peaks[1],
            gain=peaks[0] / max(peaks[1], 1e-9),
        )

    workloads = {name: one(workload) for name, workload in task.timed_workloads(rules).items()}
    return ExpectedMemory(
        anchor_weights_gib=anchor,
        weights_gib=ours,
        anchor_kv_bytes_per_token=shape.bytes_per_token(16),
        kv_bytes_per_token=shape.bytes_per_token(kv_bits),
        state_mib_per_request=shape.linear * shape.state_bytes / 2**20,
        workloads=workloads,
        gain=geometric_mean(workload.gain for workload in workloads.values()),
    )
