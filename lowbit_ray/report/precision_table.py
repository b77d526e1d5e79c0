"""W·A·KV three times over: what was declared, what the bytes say, what the engine says that it computes with."""

from __future__ import annotations

from dataclasses import dataclass

from lowbit_ray.checkpoint.precision import Precision, parse_label
from lowbit_ray.records import Record

__all__ = ["PrecisionRow", "RegionView", "precision_rows", "region_views"]

REGIONS = {
    "linear": "linear layers",
    "embedding": "embeddings",
    "head": "head",
    "vision": "vision",
    "other": "other",
}


@dataclass(frozen=True, slots=True)
class PrecisionRow:
    """One account of the precision; empty cells where it says nothing."""

    source: str
    weights: str
    activations: str
    kv: str
    note: str
    differs: bool
    """Whether it says otherwise than the bytes do."""


@dataclass(frozen=True, slots=True)
class RegionView:
    """One part of the model."""

    name: str
    parameters: int
    bits: str
    """`8` or `4 (72 %), 8 (28 %)`."""
    effective: float
    """Stored bits a weight, scales included."""
    groups: str


def precision_rows(record: Record) -> list[PrecisionRow]:
    """Declared, read, executed; only what is known."""
    result, solution = record.result, record.solution
    read = result.precision if result else None
    rows = []
    declared = parse_label(solution.precision or "") if solution.declared_precision else None
    if declared is not None:
        bits = (declared.weights, declared.activations, declared.kv)
        rows.append(_row("declared", bits, read, "by the participant"))
    elif solution.declared_precision:
        rows.append(PrecisionRow("declared", "", "", "", solution.precision or "", False))
    if read is not None:
        note = f"{read.effective_bits:.2f} stored bits a weight, scales included"
        if read.method:
            note += f" · {read.method}"
        if read.mixed:
            note += " · mixed: the label is the majority's"
        rows.append(_row("read from the bytes", (read.weights, read.activations, read.kv), read, note))
    elif solution.detected_precision:
        rows.append(_labelled(solution.detected_precision))
    if result is not None and result.executed is not None:
        run = result.executed
        note = "; ".join(run.reasons) or ", ".join(run.kernels) or "as the engine says"
        rows.append(_row("executed", (run.weights, run.activations, run.kv), read, note))
    return rows


def region_views(precision: Precision) -> list[RegionView]:
    """The parts of the model, as the bytes say."""
    return [
        RegionView(
            name=REGIONS.get(region.region, region.region),
            parameters=region.parameters,
            bits=_bits(region.bits),
            effective=region.effective_bits,
            groups=", ".join(map(str, region.group_sizes)),
        )
        for region in precision.regions
    ]


def _labelled(label: str) -> PrecisionRow:
    """What was read before the submission was refused: the label alone."""
    bits = parse_label(label.removesuffix(" mixed"))
    if bits is None:
        return PrecisionRow("read from the bytes", "", "", "", label, False)
    return _row("read from the bytes", (bits.weights, bits.activations, bits.kv), None, label)


def _row(source: str, bits: tuple[float, float, float], read: Precision | None, note: str) -> PrecisionRow:
    weights, activations, kv = (f"{value:g}" for value in bits)
    differs = read is not None and bits != (read.weights, read.activations, read.kv)
    return PrecisionRow(source, weights, activations, kv, note, differs)


def _bits(shares: dict[int, float]) -> str:
    if len(shares) == 1:
        return str(next(iter(shares)))
    return ", ".join(f"{bits} ({share:.0%})" for bits, share in sorted(shares.items()))
