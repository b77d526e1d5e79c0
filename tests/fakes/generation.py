"""What the fake engine says: tokens from the bigram table, and log-probabilities in vLLM's shapes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from bigram import EOS
from tokenizers import Tokenizer
from told import Told

__all__ = ["Voice"]


class Voice:
    """Generates and scores; knows nothing of HTTP."""

    def __init__(
        self, told: Told, tokenizer: Tokenizer | None = None, pieces: list[str] | None = None
    ) -> None:
        self.told = told
        self.table = told.bigram.logprobs
        self.size = told.bigram.vocab_size
        self.order = np.argsort(-self.table, axis=1, kind="stable")
        self.rank = np.argsort(self.order, axis=1) + 1
        self.tokenizer = tokenizer or Tokenizer.from_file(str(told.folder / "tokenizer.json"))
        self.pieces = pieces or [self._piece(token) for token in range(self.size)]
        self.asked = 0
        """Texts scored or continued so far."""

    def retold(self, told: Told) -> Voice:
        """The voice of the same vocabulary that was told something else."""
        return Voice(told, self.tokenizer, self.pieces)

    def _piece(self, token: int) -> str:
        return self.tokenizer.decode([token], skip_special_tokens=True)

    def text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def generate(self, prompt: list[int], body: dict[str, Any]) -> tuple[list[int], str]:
        """Token ids and the finish reason."""
        faults = self.told.faults
        count = max(0, int(body.get("max_tokens") or 16) - faults.short)
        least = 0 if faults.ignore_min_tokens else int(body.get("min_tokens") or 0)
        stops = faults.ignore_min_tokens or not body.get("ignore_eos")
        temperature = float(body.get("temperature") or 0)
        generator = np.random.default_rng(body.get("seed") or 0)
        out: list[int] = []
        previous = prompt[-1]
        wrong = faults.wrong or (faults.stream_wrong and bool(body.get("stream")))
        for position in range(count):
            previous = self._next(previous, temperature, generator, mask_eos=position < least, wrong=wrong)
            out.append(previous)
            if stops and previous == EOS:
                return out, "stop"
        if faults.eos_tail:
            out[-faults.eos_tail :] = [EOS] * faults.eos_tail
        return out, "length"

    def _next(
        self,
        previous: int,
        temperature: float,
        generator: np.random.Generator,
        *,
        mask_eos: bool,
        wrong: bool,
    ) -> int:
        if wrong:
            return int(generator.integers(self.size))
        if temperature == 0:
            best = self.order[previous]
            return int(best[1] if mask_eos and best[0] == EOS else best[0])
        weights = np.exp(self.table[previous] / temperature)
        if mask_eos and self.size > EOS:
            weights[EOS] = 0
        return int(generator.choice(self.size, p=weights / weights.sum()))

    def top(self, previous: int, actual: int, count: int) -> dict[int, float]:
        """The actual token, then the `count` most likely ones, as float32."""
        faults = self.told.faults
        row = self.table[previous].astype(np.float32)
        if faults.order_dependent:
            row = np.roll(row, self.asked % 5)
        count = self.size if count < 0 else count
        ids = [int(token) for token in self.order[previous][:count]]
        if faults.evasive_logprobs:
            ids = [int(token) for token in self.order[previous][::-1][:count]]
        if faults.few_logprobs:
            ids = ids[: faults.few_logprobs]
        top = {token: float(row[token]) for token in dict.fromkeys([actual, *ids])}
        if faults.nan_logprobs:
            top[actual] = float("nan")
        if faults.positive_logprobs:
            top[actual] = 0.25
        if faults.heavy_logprobs:
            top = {token: max(value, -0.5) for token, value in top.items()}
        return top

    def prompt_rows(self, prompt: list[int], count: int) -> list[dict[str, Any] | None]:
        """`prompt_logprobs`: null, then one dictionary a token, keyed by id."""
        rows: list[dict[str, Any] | None] = [None]
        if self.told.faults.borrowed_logprobs and self.told.bigram.noise:
            anchor = replace(self.told, bigram=replace(self.told.bigram, noise=0.0))
            return self.retold(anchor).prompt_rows(prompt, count)
        for previous, actual in itertools.pairwise(prompt):
            rank = self.rank[previous]
            rows.append(
                {
                    str(token): {
                        "logprob": value,
                        "rank": int(rank[token]),
                        "decoded_token": self.pieces[token],
                    }
                    for token, value in self.top(previous, actual, count).items()
                }
            )
        if self.told.faults.missing_row and len(rows) > 2:
            rows[-1] = None
        return rows

    def legacy(self, before: list[int], tokens: list[int], count: int, *, as_ids: bool) -> dict[str, Any]:
        """`logprobs` of /v1/completions for `tokens` after `before` (empty: the first has none)."""
        name = (lambda token: f"token_id:{token}") if as_ids else (lambda token: self.pieces[token])
        out: dict[str, Any] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        offset = 0
        history = [*before[-1:], *tokens]
        skip = len(history) - len(tokens)
        for place, token in enumerate(tokens):
            out["text_offset"].append(offset)
            out["tokens"].append(name(token))
            offset += len(out["tokens"][-1])
            if place + skip == 0:
                out["token_logprobs"].append(None)
                out["top_logprobs"].append(None)
                continue
            before_it = history[place + skip - 1]
            if self.told.faults.invented_logprobs:
                before_it = (before_it + 1) % self.size
            top = self.top(before_it, token, count)
            out["token_logprobs"].append(top[token])
            out["top_logprobs"].append({name(key): value for key, value in top.items()})
        return out
