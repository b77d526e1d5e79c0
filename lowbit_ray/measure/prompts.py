"""Hidden natural text → token ids: prompts and windows, cut by a secret seed.

Text is tokenized once into a pool (kept in a cache folder where one is given); what is cut from it depends
on a seed that nobody outside knows, fresh for each run: HMAC-SHA256 of the secret and what the run is.
Prompts come from disjoint places of the pool, so no two are equal and no two share a beginning.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as _Tokenizer

from lowbit_ray.errors import CheckpointError, ConfigError
from lowbit_ray.measure.text import text_mark, text_of
from lowbit_ray.tasks import TextSource

__all__ = [
    "Tokenizer",
    "cut_beginnings",
    "cut_prompts",
    "cut_windows",
    "derive_seed",
    "text_of",
    "token_pool",
]

Pool = NDArray[np.int32]
PREFIX = 16
"""No two prompts begin with the same tokens of this number: one block of a prefix cache."""
BATCH = 256


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A checkpoint's tokenizer.json; special tokens are never added."""

    inner: _Tokenizer
    digest: str
    """SHA-256 of the file."""

    @staticmethod
    def of(checkpoint: Path) -> Tokenizer:
        """Reads `tokenizer.json` of a checkpoint's folder; CheckpointError where it cannot be read."""
        path = checkpoint / "tokenizer.json"
        try:
            data = path.read_bytes()
            return Tokenizer(_Tokenizer.from_buffer(data), hashlib.sha256(data).hexdigest())
        except Exception as error:  # the library raises bare Exception for a broken file
            raise CheckpointError(
                "the tokenizer cannot be read", where="tokenizer.json", found=type(error).__name__
            ) from None

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, on all cores."""
        return [list(item.ids) for item in self.inner.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        return str(self.inner.decode([int(token) for token in ids], skip_special_tokens=True))


def derive_seed(secret: bytes, *labels: str) -> bytes:
    """HMAC-SHA256 of the labels (submission, workload, repeat, …) under the secret, 32 bytes."""
    message = b"".join(len(label.encode()).to_bytes(4, "big") + label.encode() for label in labels)
    return hmac.new(secret, message, hashlib.sha256).digest()


def token_pool(
    source: TextSource, tokenizer: Tokenizer, *, cache: Path | None = None, limit: int | None = None
) -> Pool:
    """All token ids of a source's text (`limit` of them at most), read from `cache` when it is there."""
    named = f"{source.model_dump_json()} {tokenizer.digest} {limit}{text_mark(source) if cache else ''}"
    key = hashlib.sha256(named.encode()).hexdigest()[:32]
    path = cache / f"pool-{key}.npy" if cache else None
    if path is not None and path.is_file():
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.int32)
    parts: list[NDArray[np.int32]] = []
    size = 0
    for texts in _batches(text_of(source)):
        for ids in tokenizer.encode_all(texts):
            parts.append(np.asarray(ids, dtype=np.int32))
            size += len(ids)
        if limit is not None and size >= limit:
            break
    if not size:
        raise ConfigError(
            "the text source has no text", where=f"{source.kind}: {source.path or 'docstrings'}"
        )
    pool = np.concatenate(parts)[:limit]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npy")
        np.save(partial, pool)
        partial.replace(path)
    return pool


def _batches(texts: Iterator[str]) -> Iterable[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def cut_prompts(
    pool: Pool, count: int, length: int, seed: bytes, taken: Collection[tuple[int, ...]] = ()
) -> list[tuple[int, ...]]:
    """`count` pieces of `length` tokens from places drawn by `seed`, no two with the same beginning.

    Places do not overlap while the pool is long enough for that, else they differ by where they begin; those
    with a beginning that is `taken` come in only where there are not enough others. Raises ConfigError where the
    pool has too few different beginnings.
    """
    places = _draw(pool, count, length, seed, taken)
    return [tuple(pool[place : place + length].tolist()) for place in places]


def cut_beginnings(
    pool: Pool, count: int, length: int, seed: bytes, taken: Collection[tuple[int, ...]] = ()
) -> set[tuple[int, ...]]:
    """The first PREFIX tokens of each piece that `cut_prompts` would cut."""
    short = min(length, PREFIX)
    return {tuple(pool[place : place + short].tolist()) for place in _draw(pool, count, length, seed, taken)}


def _draw(pool: Pool, count: int, length: int, seed: bytes, taken: Collection[tuple[int, ...]]) -> list[int]:
    """Where the pieces begin."""
    room = len(pool) - length + 1
    if room < count:
        raise _too_short(len(pool), count, length)
    step = max(1, min(length, room // count))
    generator = random.Random(seed)
    offset = generator.randrange(min(step, room - (count - 1) * step))
    places = list(range(offset, room, step))
    generator.shuffle(places)
    fresh: list[int] = []
    repeated: list[int] = []
    beginnings: set[tuple[int, ...]] = set()
    for place in places:
        beginning = tuple(pool[place : place + min(length, PREFIX)].tolist())
        if beginning in beginnings:
            continue
        beginnings.add(beginning)
        (repeated if beginning in taken else fresh).append(place)
        if len(fresh) == count:
            return fresh
    if len(fresh) + len(repeated) < count:
        raise _too_short(len(pool), count, length)
    return (fresh + repeated)[:count]


def cut_windows(
    pool: Pool, count: int | None, length: int, seed: bytes | None = None
) -> list[tuple[int, ...]]:
    """`count` windows that do not overlap: the first ones, or a draw by `seed` among all of them; None takes all."""
    places = list(range(0, len(pool) - length + 1, length))
    count = max(len(places), 1) if count is None else count
    if len(places) < count:
        raise _too_short(len(pool), count, length)
    if seed is not None:
        places = sorted(random.Random(seed).sample(places, count))
    return [tuple(int(token) for token in pool[place : place + length]) for place in places[:count]]


def _too_short(tokens: int, count: int, length: int) -> ConfigError:
    return ConfigError(
        "the hidden text is too short",
        where="prompts",
        found=f"{tokens} tokens",
        expected=f"{count} different pieces of {length} tokens",
        remedy="Name a larger text source in the task's file.",
    )
