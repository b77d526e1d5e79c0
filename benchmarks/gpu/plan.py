"""What is evaluated, in which order, and about how long each takes on an H200."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["DEFAULT", "ENTRIES", "Entry", "choose", "next_entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One evaluation."""

    name: str
    task: str
    checkpoint: str
    """Folder below the made checkpoints."""
    declared: str
    method: str
    minutes: float
    """Expected; an evaluation that would not end in time is not begun."""


def _shape(name: str, suffix: str, declared: str, method: str, minutes: float) -> Entry:
    return Entry(f"8b-{name}", "qwen3-8b-shape", f"qwen3-8b{suffix}", declared, method, minutes)


def _small(name: str, suffix: str, declared: str, method: str) -> Entry:
    return Entry(f"smollm2-{name}", "smollm2-gpu", f"smollm2{suffix}", declared, method, 6)


FP8 = "round to nearest: FP8 weights a channel, FP8 activations a token, FP8 KV cache"
ENTRIES = {
    entry.name: entry
    for entry in (
        _shape("fp8", "-fp8", "W8A8KV8", FP8, 19),
        _small("fp8", "-fp8", "W8A8KV8", FP8),
        _small("int4", "-int4", "W4A16KV16", "round to nearest: int4 weights in groups of 32"),
        _small("bf16", "", "W16A16KV16", "the anchor itself"),
        _small(
            "int8", "-int8", "W8A8KV16", "round to nearest: int8 weights a channel, int8 activations a token"
        ),
        _shape("w4a16", "-w4a16", "W4A16KV16", "round to nearest: int4 weights in groups of 128", 20),
        Entry("8b-bf16", "qwen3-8b-speed", "qwen3-8b", "W16A16KV16", "the anchor itself", 18),
        Entry("8b-tp2", "qwen3-8b-tp2", "qwen3-8b", "W16A16KV16", "the anchor itself, over two GPUs", 9),
    )
}
"""By name, in order of priority."""
DEFAULT = ",".join(ENTRIES)


def choose(text: str) -> list[Entry]:
    """Entries by their names with commas between; ValueError names one that is not there."""
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in ENTRIES]
    if unknown:
        raise ValueError(f"no such evaluation: {', '.join(unknown)}; there are {DEFAULT}")
    return [ENTRIES[name] for name in names]


def next_entry(
    waiting: Iterable[Entry], minutes_left: float, ready: Callable[[Entry], bool] = lambda _: True
) -> Entry | None:
    """The first that is ready and still ends in time; None where none is."""
    return next((entry for entry in waiting if entry.minutes <= minutes_left and ready(entry)), None)
