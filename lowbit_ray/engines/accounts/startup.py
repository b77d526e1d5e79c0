"""What an engine's start-up accounts say, as it stands in the record under `engine.startup`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["MaxConcurrency", "Startup"]

GIB = 2**30
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MaxConcurrency(BaseModel):
    """How many of the longest requests the KV pool holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sequences: Amount
    tokens_per_request: Annotated[int, Field(ge=1)]


class Startup(BaseModel):
    """One start. Amounts of memory are the pod's: with tensor parallelism, all ranks together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cuda_graph_gib: Amount
    """Measured when the graphs were captured; 0 without graphs."""
    engine_init_seconds: Amount
    """Profile, KV pool and warm-up."""
    kv_bytes_per_token: Amount
    """Bytes of the pool over its tokens."""
    kv_cache_dtype: str
    kv_cache_gib: Amount
    """The KV pool."""
    kv_cache_tokens: Amount
    load_seconds: Amount
    max_concurrency: MaxConcurrency
    speculative_config: str
    vllm_version: str
    """As the engine prints it."""
    weights_gib: Amount
    """Weights held on the device."""

    peak_activation_gib: Amount | None
    """Peak of a forward pass beyond weights, without graphs; None where the engine does not say (CPU)."""
    non_torch_gib: Amount | None
    """Memory outside PyTorch's allocator; None where the engine does not say (CPU)."""
    other_gib: Amount
    """Activation + non-torch + graphs: what a peak has beside weights and KV."""
    leaves_out: Literal["", "runtime"] = ""
    """`runtime` on a CPU: activations and libraries are in no account, so peaks are weights + KV."""

    device: Literal["cuda", "cpu"]
    kernels: tuple[str, ...] = ()
    """What the engine says it chose: linear kernels, attention backends, fallbacks."""
    kv_block_size: Annotated[int, Field(ge=1)]
    """Tokens of a KV block."""
    kv_blocks: Annotated[int, Field(ge=1)]
    offload: tuple[str, ...] = ()
    """Weights or KV blocks in host memory, one finding each: the engine rules are broken."""
    quantization: str
    release: str
    """The release whose parser read the log."""
    runner: Literal["V1", "V2"]
    tensor_parallel: Annotated[int, Field(ge=1)]

    @property
    def kv_block_bytes(self) -> int:
        """Bytes of one KV block, over all ranks."""
        return int(self.kv_cache_gib * GIB / self.kv_blocks)
