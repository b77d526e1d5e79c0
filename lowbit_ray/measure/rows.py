"""Reads the shapes in which servers return log-probabilities, and refuses what cannot be one.

`prompt_logprobs` (vLLM): a list, null first, then {id: {"logprob": x, ...}} for each token. `logprobs` of
/v1/completions: parallel lists `tokens`, `token_logprobs`, `top_logprobs`, ids as "token_id:17"; or a list
`content` of {"id": 17, "logprob": x, "top_logprobs": [{"id": 17, "logprob": x}]}, as llama.cpp has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.stream import COMPLETIONS, LARGEST_ID

__all__ = ["Entry", "LegacyRow", "generated_rows", "legacy_rows", "pack", "prompt_rows"]

Entry = tuple[int, float]
"""Token id, log-probability."""
POSITIVE = 1e-5
"""A log-probability may be this much above 0: float32 rounding."""
HEAVY = 1e-3
"""The top log-probabilities of a position may sum to this much above 1: bfloat16 and float32 rounding."""
PREFIX = "token_id:"


@dataclass(frozen=True, slots=True)
class LegacyRow:
    """One token of a `logprobs` object."""

    token: int
    top: list[Entry]
    """Its alternatives, itself among them; empty for a first token, which has nothing before it."""


def prompt_rows(value: Any, length: int) -> list[list[Entry]]:
    """Rows of `prompt_logprobs` of a prompt of `length` tokens; the first is empty."""
    where = f"{COMPLETIONS}: prompt_logprobs"
    if not isinstance(value, list) or len(value) != length:
        found = f"{len(value)} rows" if isinstance(value, list) else type(value).__name__
        raise EngineAnswerError(
            "prompt log-probabilities have the wrong length",
            where=where,
            found=found,
            expected=f"{length} rows",
        )
    rows: list[list[Entry]] = [[]]
    for place, row in enumerate(value[1:], start=1):
        if not isinstance(row, dict) or not row:
            raise EngineAnswerError(
                "a position has no log-probabilities",
                where=f"{where}[{place}]",
                found=type(row).__name__,
                expected="a row for every token but the first",
                remedy="Serve without prefix caching.",
            )
        try:
            rows.append([(int(key), float(item["logprob"])) for key, item in row.items()])
        except (TypeError, ValueError, KeyError, OverflowError):
            raise _malformed(f"{where}[{place}]") from None
    return rows


def legacy_rows(value: Any) -> list[LegacyRow] | None:
    """Rows of a `logprobs` object; None where its tokens are text rather than ids."""
    where = f"{COMPLETIONS}: logprobs"
    try:
        if isinstance(value.get("content"), list):
            return [
                LegacyRow(
                    int(item["id"]), [(int(top["id"]), float(top["logprob"])) for top in item["top_logprobs"]]
                )
                for item in value["content"]
            ]
        tokens, tops = value["tokens"], value["top_logprobs"]
        if not all(str(token).startswith(PREFIX) for token in tokens):
            return None
        return [
            LegacyRow(
                int(token[len(PREFIX) :]),
                [(int(key[len(PREFIX) :]), float(logprob)) for key, logprob in (top or {}).items()],
            )
            for token, top in zip(tokens, tops, strict=True)
        ]
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        raise _malformed(where) from None


def generated_rows(value: Any) -> list[LegacyRow] | None:
    """Rows of generated tokens: as `legacy_rows`, and none of them empty."""
    rows = legacy_rows(value)
    if rows is not None and any(not row.top for row in rows):
        raise EngineAnswerError(
            "a generated token has no log-probabilities", where=f"{COMPLETIONS}: logprobs"
        )
    return rows


def _malformed(where: str) -> EngineAnswerError:
    return EngineAnswerError("log-probabilities are malformed", where=where, expected="ids and numbers")


def pack(
    rows: Sequence[Sequence[Entry]], wanted: Sequence[int], top_k: int, *, actual_required: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Sorted top-K arrays ids [T, K], logprobs [T, K], and the wanted tokens' own [T].

    A row may list fewer than K ids only where they hold the whole mass (a small vocabulary).
    """
    ids = np.full((len(rows), top_k), -1, dtype=np.int64)
    logprobs = np.full((len(rows), top_k), -np.inf)
    actual = np.full(len(rows), np.nan)
    for place, (row, token) in enumerate(zip(rows, wanted, strict=True)):
        entries = sorted(dict(row).items(), key=_likeliest)
        _check(entries, place, top_k)
        own = dict(entries).get(token)
        if own is not None:
            actual[place] = own
        elif actual_required:
            raise EngineAnswerError(
                "the text's own token has no log-probability", where=f"{COMPLETIONS}: position {place}"
            )
        top = entries[:top_k]
        ids[place, : len(top)] = [key for key, _ in top]
        logprobs[place, : len(top)] = [value for _, value in top]
    return ids, np.minimum(logprobs, 0.0), np.minimum(actual, 0.0)


def _likeliest(entry: Entry) -> tuple[float, int]:
    return -entry[1], entry[0]


def _check(entries: Sequence[Entry], place: int, top_k: int) -> None:
    where = f"{COMPLETIONS}: log-probabilities of position {place}"
    for key, value in entries:
        if not 0 <= key < LARGEST_ID:
            found = "a negative one" if key < 0 else "a larger one"  # itself it could spell a prompt
            raise EngineAnswerError(
                "a token id is out of range", where=where, found=found, expected=f"below {LARGEST_ID}"
            )
        if not math.isfinite(value):
            raise EngineAnswerError("a log-probability is not finite", where=where, found=value)
        if value > POSITIVE:
            raise EngineAnswerError(
                "a log-probability is positive", where=where, found=f"{value:.3g}", expected="≤ 0"
            )
    mass = math.fsum(math.exp(min(value, 0.0)) for _, value in entries)
    if mass > 1 + HEAVY:
        raise EngineAnswerError(
            "the probabilities of a position sum to more than 1",
            where=where,
            found=f"{mass:.4g}",
            expected="≤ 1",
        )
    if len(entries) < top_k and mass < 1 - HEAVY:
        raise EngineAnswerError(
            "a position has fewer log-probabilities than asked for",
            where=where,
            found=len(entries),
            expected=top_k,
            remedy="Serve with a higher limit (vLLM: --max-logprobs).",
        )
