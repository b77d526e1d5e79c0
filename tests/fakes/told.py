"""What the fake engine is told: fake.json in the model's folder, vLLM's flags, and the folder's own bytes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bigram import VOCABULARY, Bigram

__all__ = ["Faults", "Flags", "Told", "read_told"]

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Faults:
    """Everything that can be wrong with a server; all off by default. The first request is 1."""

    slow: float = 1.0
    """Tokens come this many times slower."""
    short: int = 0
    """Tokens fewer than asked for."""
    wrong: bool = False
    """Generated tokens are drawn uniformly."""
    dead_at_load: bool = False
    dies_at: int = 0
    """The process exits in the n-th completion, after its first token."""
    error_stream_at: int = 0
    """The n-th completion is HTTP 200 with an error object and no token (all later ones too)."""
    http_500_at: int = 0
    """The n-th completion is HTTP 500 (all later ones too)."""
    hang: bool = False
    """Streams stop after the first token."""
    silent: bool = False
    """Accepts requests, never answers (health and models too)."""
    trickle: bool = False
    """Streams send comments for ever and no token."""
    no_logprobs: bool = False
    no_prompt_logprobs: bool = False
    """HTTP 400 for prompt_logprobs."""
    no_echo: bool = False
    """HTTP 400 for echo."""
    ignores_echo: bool = False
    """Answers as if `echo` had not been asked for, as llama.cpp does."""
    nan_logprobs: bool = False
    positive_logprobs: bool = False
    heavy_logprobs: bool = False
    """The top log-probabilities at a position sum to more than 1."""
    few_logprobs: int = 0
    """At most this many top log-probabilities, whatever was asked for."""
    evasive_logprobs: bool = False
    """Lists the least likely tokens as if they were the top."""
    missing_row: bool = False
    """One row of prompt log-probabilities is null, as from a stale prefix cache."""
    order_dependent: bool = False
    """Log-probabilities depend on how many requests came before."""
    wrong_usage: int = 0
    """Added to the completion tokens reported."""
    wrong_prompt_usage: int = 0
    no_usage: bool = False
    ignore_min_tokens: bool = False
    """Stops at the first end-of-sequence token in spite of ignore_eos and min_tokens."""
    chunk_tokens: int = 1
    """Tokens a chunk of a stream."""
    burst: bool = False
    """Tokens are withheld and sent at the end in a burst."""
    drop_keepalive: bool = False
    """Closes each connection after an answer that promised to keep it."""
    empty_first: bool = False
    """A chunk without a token comes first."""
    prefix_hits: int = 0
    """Prefix cache hits (tokens) reported for each request."""
    eos_tail: int = 0
    """The last n tokens are end-of-sequence."""
    no_token_ids: bool = False
    strict_body: bool = False
    """HTTP 400 for request fields that OpenAI's API does not have."""
    no_metrics: bool = False
    old_gauge: bool = False
    """vLLM's earlier name of the KV gauge."""
    zero_gauge: bool = False
    answer_cache: bool = False
    """A prompt seen before is answered ten times faster."""
    huge_answer: bool = False
    """Answers without a stream never end."""
    stream_wrong: bool = False
    """Streams say tokens that are drawn uniformly; all other answers are the model's."""
    invented_logprobs: bool = False
    """The lists beside generated tokens are those after another token."""
    borrowed_logprobs: bool = False
    """A finished text is scored by the anchor's distributions, whatever the engine itself would say."""
    text_of_other_ids: bool = False
    """The ids are right, the text is that of other ids."""


@dataclass(frozen=True, slots=True)
class Flags:
    """vLLM's flags that the fake honours; all others are accepted."""

    model: str = ""
    host: str = "127.0.0.1"
    port: int = 8000
    uds: str = ""
    served_model_name: str = ""
    max_model_len: int = 2048
    max_num_seqs: int = 256
    max_logprobs: int = 20
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int = 0
    kv_cache_dtype: str = "auto"
    others: tuple[str, ...] = ()

    @staticmethod
    def parse(argv: list[str]) -> Flags:
        known = {item.name: item.type for item in fields(Flags)}
        values: dict[str, Any] = {}
        others: list[str] = []
        words = iter(word for argument in argv for word in argument.split("=", 1))
        pending = ""
        for word in words:
            if word.startswith("--"):
                pending = word[2:].replace("-", "_")
                others.append(pending)
            elif pending in known:
                kind = {"int": int, "float": float}.get(str(known[pending]), str)
                values[pending], pending = kind(word), ""
            elif not pending and not values.get("model") and word != "serve":
                values["model"] = word
        unknown = tuple(name for name in others if name not in known)
        return Flags(**values, others=unknown)


@dataclass(frozen=True, slots=True)
class Told:
    """One engine, ready to start."""

    flags: Flags
    bigram: Bigram
    faults: Faults
    folder: Path
    tokens_per_s: float
    """Of each request; 0 is as fast as possible."""
    prefill_tokens_per_s: float
    start_s: float
    log: str
    """`0.25.1` or `cpu`: whose start-up lines to print."""
    device_gib: float
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    graphs_gib: float
    kv_bytes_per_token: int
    cuda_gib: float = 0.0
    """Really held of the GPU, whatever its start-up lines say."""
    answers: dict[str, str] = field(default_factory=dict, repr=False)
    """SHA-256 of the last user message → answer."""
    bad_answers: float = 0.0
    """Share of the answers that are replaced by greedy text."""

    @property
    def other_gib(self) -> float:
        return self.activation_gib + self.non_torch_gib + self.graphs_gib

    @property
    def pool_bytes(self) -> int:
        """Bytes of the KV pool: as told, or what the budget leaves (graphs lie outside, as in 0.25.1)."""
        if self.flags.kv_cache_memory_bytes:
            return self.flags.kv_cache_memory_bytes
        if self.log == "cpu":
            return int(float(os.environ.get("VLLM_CPU_KVCACHE_SPACE") or 1) * GIB)
        held = self.weights_gib + self.activation_gib + self.non_torch_gib
        return int((self.flags.gpu_memory_utilization * self.device_gib - held) * GIB)

    @property
    def pool_tokens(self) -> int:
        return max(0, self.pool_bytes // self.kv_bytes_per_token // 16 * 16)


def read_told(argv: list[str]) -> Told:
    """Flags and the model's folder; what fake.json leaves out is derived from the folder."""
    flags = Flags.parse(argv)
    folder = Path(flags.model)
    config = json.loads((folder / "config.json").read_text())
    path = folder / "fake.json"
    fake: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    scale = float(fake.pop("size_scale", 10_000))
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    kv = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    kv_bits = 8 if flags.kv_cache_dtype.startswith("fp8") else 16
    names = ("seed", "sharpness", "noise", "noise_seed", "eos_logit")
    answers = fake.pop("answers", None)
    return Told(
        flags=flags,
        folder=folder,
        bigram=Bigram(
            vocab_size=int(fake.pop("vocab_size", config.get("vocab_size", VOCABULARY))),
            **{name: fake.pop(name) for name in names if name in fake},
        ),
        faults=Faults(**fake.pop("faults", {})),
        answers=json.loads((folder / answers).read_text()) if answers else {},
        **{
            "tokens_per_s": 0.0,
            "prefill_tokens_per_s": 0.0,
            "start_s": 0.0,
            "log": "0.25.1",
            "device_gib": 24.0,
            "weights_gib": round(stored * scale / GIB, 2),
            "activation_gib": 0.30,
            "non_torch_gib": 0.10,
            "graphs_gib": 0.05,
            "kv_bytes_per_token": int(kv * kv_bits // 8 * scale),
            **fake,
        },
    )
