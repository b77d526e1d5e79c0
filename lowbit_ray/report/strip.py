"""The audit as a strip: where each sample's gap lies between BF16's own words (0) and the limit.

Records from before the gaps were kept have median, mean and largest alone; the strip then shows those.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowbit_ray.measure.audit import Audit

__all__ = ["Strip", "strip_of"]

REACH = 1.5
"""The strip shows gaps up to this multiple of the limit; larger ones stand at its end."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Places on a strip, percent of its width."""

    zero: float
    limit: float | None
    median: float
    samples: tuple[float, ...]
    beyond: int
    """Samples beyond the strip's end."""
    words: str
    """The same, for who cannot see it."""


def strip_of(audit: Audit, limit: float | None) -> Strip | None:
    """The strip of one workload's audit; None without samples."""
    if audit.gap_median is None:
        return None
    gaps = _gaps(audit)
    reach = REACH * limit if limit else max(1.2 * max(gaps), 1e-3)
    low = min(0.0, max(min(gaps), -reach / 3))
    whole = reach - low

    def place(gap: float) -> float:
        return 100 * (min(max(gap, low), reach) - low) / whole

    beyond = sum(gap > reach for gap in gaps)
    most = f", largest {audit.gap_max:+.4f}" if audit.gap_max is not None else ""
    held = f", limit {limit:g}" if limit else ""
    return Strip(
        zero=place(0.0),
        limit=place(limit) if limit else None,
        median=place(audit.gap_median),
        samples=tuple(place(gap) for gap in gaps),
        beyond=beyond,
        words=f"Gaps of {audit.samples} samples: median {audit.gap_median:+.4f}{most} nats per token{held}",
    )


def _gaps(audit: Audit) -> tuple[float, ...]:
    return audit.gaps or tuple(gap for gap in (audit.gap, audit.gap_max) if gap is not None)
