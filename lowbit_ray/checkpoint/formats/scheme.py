"""What a format's reader says of one weight: which numbers, in which tensors, and what stands beside them.

A reader turns a checkpoint's quantization config into `Scheme`s; `stored.py` then looks whether the bytes are
what the scheme says. `Layout` is the one place that knows how many bits a packed tensor's shape means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from lowbit_ray.checkpoint.header import DTYPE_BITS, Tensor
from lowbit_ray.checkpoint.names import Weight

__all__ = [
    "AWQ",
    "BLOCKS",
    "BYTES",
    "DENSE",
    "FLAT",
    "GPTQ",
    "NIBBLES",
    "PLAIN_DTYPES",
    "QBYTES",
    "WORDS",
    "KVScheme",
    "Layout",
    "Number",
    "Part",
    "Plan",
    "Review",
    "Scheme",
    "Shapes",
    "dense",
    "scalar",
    "scale_shapes",
]

Shapes = tuple[tuple[int, ...], ...]
PLAIN_DTYPES = frozenset({"BF16", "F16", "F32"})


@dataclass(frozen=True, slots=True)
class Number:
    """A number format by its width; 16 means not quantized."""

    bits: int
    kind: Literal["int", "float"] = "int"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a weight of `rows` × `columns` is laid out in one tensor."""

    suffix: str
    """Of the tensor's name, after the module's."""
    dtypes: frozenset[str]
    shapes: Callable[[int, int, int], Shapes]
    """(rows, columns, bits) → the shapes that hold them."""
    packed: bool = True
    """Whether the bits follow from the shape; otherwise from the dtype."""

    def bits(self, tensor: Tensor, weight: Weight, expected: int) -> int | None:
        """Bits of one element of `weight` in `tensor`, None when that does not hold it in this layout.

        Padding can make a shape fit two widths; `expected` is preferred then.
        """
        if tensor.dtype not in self.dtypes:
            return None
        widths = (expected, *range(1, 9)) if self.packed else (DTYPE_BITS[tensor.dtype],)
        return next((bits for bits in widths if tensor.shape in self.shapes_of(weight, bits)), None)

    def shapes_of(self, weight: Weight, bits: int) -> Shapes:
        """The shapes that hold `weight`, stacked as it is."""
        return tuple(weight.lead + shape for shape in self.shapes(weight.rows, weight.columns, bits))


def _up(value: int, unit: int) -> int:
    return -(-value // unit)


def _words(length: int, bits: int) -> set[int]:
    """32-bit words for `length` values: vLLM packs across words, compressed-tensors within each of them."""
    return {_up(length * bits, 32), _up(length, 32 // bits)}


DENSE = Layout("weight", frozenset(DTYPE_BITS) - {"U8"}, lambda n, k, _: ((n, k),), packed=False)
BYTES = Layout("weight", frozenset({"U8"}), lambda n, k, b: ((n, k * b // 8),))
"""Nibbles in bytes, under the plain name (ModelOpt)."""
NIBBLES = Layout("weight_packed", frozenset({"U8"}), lambda n, k, b: ((n, k * b // 8),))
"""Nibbles in bytes (compressed-tensors)."""
WORDS = Layout(
    "weight_packed", frozenset({"I32"}), lambda n, k, b: tuple((n, words) for words in sorted(_words(k, b)))
)
"""Words along the columns (compressed-tensors)."""
GPTQ = Layout(
    "qweight", frozenset({"I32"}), lambda n, k, b: tuple((words, n) for words in sorted(_words(k, b)))
)
"""Words along the input dimension, transposed."""
QBYTES = Layout("qweight", frozenset({"U8"}), lambda n, k, b: ((n, k * b // 8),))
"""Nibbles in bytes, under GPTQ's name (FP-Quant)."""
FLAT = Layout("weight", frozenset({"U8"}), lambda n, k, b: ((_up(n * k * b, 8), 1),))
"""One long column of bytes (bitsandbytes)."""
BLOCKS = Layout("_blocks", frozenset({"U8"}), lambda n, k, _: ((n, k // 32, 16), (k, n // 32, 16)))
"""Blocks of 32 nibbles; the source may hold the matrix transposed (gpt-oss)."""
AWQ = Layout("qweight", frozenset({"I32"}), lambda n, k, b: ((k, _up(n * b, 32)),))
"""Words along the output dimension, transposed."""


@dataclass(frozen=True, slots=True)
class Part:
    """A companion tensor of a stored weight."""

    suffix: str
    shapes: Shapes
    """Shapes it may have; none given allows any, as far as its size is that of a companion."""
    required: bool = True
    dtypes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Scheme:
    """What the config says of one weight."""

    weights: Number
    layout: Layout
    companions: tuple[Part, ...] = ()
    activations: Number | None = None
    """None: 16 bit."""
    group_size: int | None = None
    """Weights along the input dimension that share a scale; None: the whole row, or tensor."""
    optional: bool = False
    """Whether the engine takes a plainly stored weight as not quantized, though the config covers it."""

    @property
    def activation_bits(self) -> int:
        return self.activations.bits if self.activations else 16


def dense(weight: Weight, bits: int = 16) -> Scheme:
    """A weight that is not quantized."""
    return Scheme(Number(bits, "float"), replace(DENSE, suffix=weight.leaf, dtypes=PLAIN_DTYPES))


def scalar() -> Shapes:
    """Shapes of one number."""
    return ((), (1,), (1, 1))


def scale_shapes(
    rows: int, columns: int, strategy: str, group: int = 0, block: tuple[int, int] = (0, 0)
) -> Shapes:
    """Shapes of a scale by strategy: tensor, channel, group or block, in the weight's order of dimensions."""
    if strategy == "channel":
        return ((rows, 1), (rows,))
    if strategy in ("group", "tensor_group"):
        return ((rows, _up(columns, group)),)
    if strategy == "block":
        return ((_up(rows, block[0]), _up(columns, block[1])),)
    return scalar()


@dataclass(frozen=True, slots=True)
class KVScheme:
    """What the config says of the KV cache."""

    bits: int
    kind: Literal["int", "float"]
    strategy: str = "tensor"
    scales: Literal["required", "optional", "none"] = "none"
    """Whether k and v scales are expected for each attention layer."""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """Something that the bytes cannot show, or that only a person can judge."""

    where: str
    summary: str


class Plan(Protocol):
    """One checkpoint's quantization config, read."""

    @property
    def method(self) -> str:
        """The name as vLLM spells it."""

    @property
    def kv(self) -> KVScheme | None: ...

    @property
    def reviews(self) -> tuple[Review, ...]: ...

    @property
    def traits(self) -> Mapping[str, object]:
        """What decides whether a release serves it: act_order, bits, format and the like."""

    def scheme(self, weight: Weight) -> Scheme | None:
        """The scheme of a weight, None when it stays as in the source."""


@dataclass(frozen=True, slots=True)
class BasePlan:
    """The attributes every plan has."""

    method: str
    kv: KVScheme | None = None
    reviews: tuple[Review, ...] = ()
    traits: Mapping[str, object] = field(default_factory=dict)
