"""How the candidate holds each weight of the source: bits, group and bytes, read from its tensors.

The config only says what to look for; the bits come from the shape of what is there. A weight may be held
under its own name, fused with its siblings or split (`names.spellings`), plainly or packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lowbit_ray.checkpoint.companions import largest_companion
from lowbit_ray.checkpoint.findings import Finding, show
from lowbit_ray.checkpoint.formats.scheme import (
    AWQ,
    BLOCKS,
    BYTES,
    DENSE,
    FLAT,
    GPTQ,
    NIBBLES,
    PLAIN_DTYPES,
    QBYTES,
    WORDS,
    Plan,
    Scheme,
    dense,
)
from lowbit_ray.checkpoint.header import DTYPE_BITS, Tensor
from lowbit_ray.checkpoint.names import Weight, canonical, spellings

__all__ = ["Candidate", "Stored", "store", "tensor_name"]

LAYOUTS = (DENSE, NIBBLES, WORDS, GPTQ, AWQ, BYTES, QBYTES, FLAT, BLOCKS)
"""Every layout, to say what is there when it is not what the config says."""


class Candidate:
    """The candidate's tensors by canonical name, and which of them some weight accounts for."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors = {canonical(tensor.name): tensor for tensor in tensors}
        self.used: set[str] = set()

    def get(self, name: str) -> Tensor | None:
        return self._tensors.get(name)

    def take(self, name: str) -> None:
        """Counts a tensor as accounted for."""
        self.used.add(name)

    def unused(self) -> Mapping[str, Tensor]:
        """Tensors that no weight accounts for, by canonical name."""
        return {name: tensor for name, tensor in self._tensors.items() if name not in self.used}


def tensor_name(weight: Weight, suffix: str) -> str:
    """The name of a tensor of `weight`; to stacked experts, which have no `.weight`, it is appended."""
    if weight.leaf == "":
        suffix = suffix.removeprefix("weight")
        return weight.module + suffix if suffix[:1] in ("", "_") else f"{weight.module}_{suffix}"
    return f"{weight.module}.{suffix}"


@dataclass(frozen=True, slots=True)
class Stored:
    """One source weight as the candidate holds it."""

    weight: Weight
    bits: int
    """From the bytes; of the widest piece if it is held in several."""
    activation_bits: int
    group_size: int | None
    nbytes: float
    """Of the weight and its companions; of its share of them where it is fused with others."""
    quantized: bool
    scheme: Scheme | None
    """What the config says of it (of its first piece)."""
    problems: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class _Piece:
    bits: int
    nbytes: int
    scheme: Scheme
    quantized: bool
    problems: tuple[Finding, ...]


def store(
    weight: Weight,
    source: Mapping[str, Weight],
    candidate: Candidate,
    plan: Plan | None,
    heads: tuple[int, int] | None,
) -> Stored | None:
    """How the candidate holds `weight`; None when it holds it in no form."""
    for pieces in spellings(weight, source, heads):
        read = [_read(piece, candidate, plan) for piece in pieces]
        held = [piece for piece in read if piece is not None]
        if len(held) < len(pieces):
            continue
        total = sum(piece.elements for piece in pieces)
        return Stored(
            weight=weight,
            bits=max(piece.bits for piece in held),
            activation_bits=max(piece.scheme.activation_bits if piece.quantized else 16 for piece in held),
            group_size=held[0].scheme.group_size if held[0].quantized else None,
            nbytes=sum(piece.nbytes for piece in held) * weight.elements / max(total, 1),
            quantized=any(piece.quantized for piece in held),
            scheme=held[0].scheme,
            problems=tuple(problem for piece in held for problem in piece.problems),
        )
    return None


def _read(piece: Weight, candidate: Candidate, plan: Plan | None) -> _Piece | None:
    scheme = plan.scheme(piece) if plan is not None and piece.quantizable else None
    if scheme is None:
        return _read_plain(piece, candidate, plan)
    name = tensor_name(piece, scheme.layout.suffix)
    main = candidate.get(name)
    bits = scheme.layout.bits(main, piece, scheme.weights.bits) if main else None
    if main is None or bits is None:
        return _read_otherwise(piece, candidate, scheme)
    candidate.take(name)
    problems = []
    if bits != scheme.weights.bits:
        # narrow integers may be kept in bytes until the engine packs them; a packed width is what is there
        problem = _problem(
            main, "the tensor holds another width than the config says", bits, scheme.weights.bits
        )
        problems.append(problem.model_copy(update={"breaks": scheme.layout.packed}))
    nbytes, more = _companions(piece, candidate, scheme, main)
    return _Piece(bits, main.nbytes + nbytes, scheme, True, (*problems, *more))


def _companions(
    piece: Weight, candidate: Candidate, scheme: Scheme, main: Tensor
) -> tuple[int, list[Finding]]:
    """Bytes of the companions that are there, and what is wrong with them."""
    nbytes, problems = 0, []
    for part in scheme.companions:
        name = tensor_name(piece, part.suffix)
        tensor = candidate.get(name)
        if tensor is None:
            if part.required:
                problems.append(
                    Finding(
                        file=main.file,
                        field=name,
                        found="no such tensor",
                        expected=f"shape {_shapes(part.shapes)}",
                        summary="a companion of a quantized weight is missing; engines load without it",
                        rule="companions",
                    )
                )
            continue
        candidate.take(name)
        nbytes += tensor.nbytes
        if part.shapes and not _fits(tensor.shape, part.shapes, piece.lead):
            expected = _shapes(part.shapes)
            problems.append(
                _problem(tensor, "a companion has another shape", list(tensor.shape), expected, "companions")
            )
        elif not part.shapes and tensor.nbytes > largest_companion(piece):
            problems.append(
                _problem(
                    tensor,
                    "a companion is too large to be one",
                    f"{tensor.nbytes} bytes",
                    "a scale",
                    "companions",
                )
            )
        elif part.dtypes and tensor.dtype not in part.dtypes:
            expected = " or ".join(sorted(part.dtypes))
            problems.append(
                _problem(tensor, "a companion has another dtype", tensor.dtype, expected, "companions")
            )
    return nbytes, problems


def _fits(shape: tuple[int, ...], allowed: Iterable[tuple[int, ...]], lead: tuple[int, ...]) -> bool:
    return any(shape in (one, lead + one) for one in allowed)


def _read_plain(piece: Weight, candidate: Candidate, plan: Plan | None) -> _Piece | None:
    """A weight that the config leaves as it is."""
    scheme = dense(piece)
    main = candidate.get(piece.name)
    if main is None or main.dtype not in PLAIN_DTYPES or main.shape != piece.shape:
        return _read_otherwise(piece, candidate, scheme, covered=False)
    candidate.take(piece.name)
    return _Piece(DTYPE_BITS[main.dtype], main.nbytes, scheme, False, ())


def _read_otherwise(
    piece: Weight, candidate: Candidate, scheme: Scheme, covered: bool = True
) -> _Piece | None:
    """A weight that is there, but not as the config says; None when it is not there at all."""
    plain = candidate.get(piece.name)
    if plain is not None and plain.dtype in PLAIN_DTYPES and plain.shape == piece.shape:
        candidate.take(piece.name)
        problem = _problem(
            plain, "the config says it is quantized, the tensor is not", plain.dtype, _says(scheme)
        )
        problems = () if scheme.optional else (problem,)
        return _Piece(DTYPE_BITS[plain.dtype], plain.nbytes, dense(piece), False, problems)
    name, main, bits = _recognise(piece, candidate)
    if main is None:
        return None
    candidate.take(name)
    if bits is None:
        shapes = _shapes(
            scheme.layout.shapes_of(piece, scheme.weights.bits) if piece.quantizable else (piece.shape,)
        )
        found = f"{main.dtype} {list(main.shape)}"
        problem = _problem(
            main, "the tensor is not this weight", found, f"{shapes} for {_says(scheme)}", "source_weights"
        )
        return _Piece(DTYPE_BITS[main.dtype], main.nbytes, scheme, main.dtype not in PLAIN_DTYPES, (problem,))
    summary = (
        "the tensor is stored otherwise than the config says"
        if covered
        else "the config leaves it unquantized"
    )
    problem = _problem(main, summary, f"{bits} bits in {main.dtype} {list(main.shape)}", _says(scheme))
    return _Piece(bits, main.nbytes, scheme, True, (problem,))


def _recognise(piece: Weight, candidate: Candidate) -> tuple[str, Tensor | None, int | None]:
    """The first tensor that could be this weight, and its bits if its shape fits."""
    present = None
    for layout in LAYOUTS if piece.quantizable else (DENSE,):
        name = piece.name if layout is DENSE else tensor_name(piece, layout.suffix)
        tensor = candidate.get(name)
        if tensor is None:
            continue
        bits = layout.bits(tensor, piece, 4) if piece.quantizable else None
        if bits is not None:
            return name, tensor, bits
        present = present or (name, tensor)
    return (*present, None) if present else (piece.name, None, None)


def _says(scheme: Scheme) -> str:
    return f"{scheme.weights.bits} bits" if scheme.weights.bits < 16 else "an unquantized weight"


def _shapes(shapes: Iterable[tuple[int, ...]]) -> str:
    return " or ".join(str(list(shape)) for shape in shapes)


def _problem(
    tensor: Tensor, summary: str, found: object, expected: object, rule: str = "precision"
) -> Finding:
    return Finding(
        file=tensor.file,
        field=tensor.name,
        found=show(found),
        expected=show(expected),
        summary=summary,
        rule=rule,
    )
