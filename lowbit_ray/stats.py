"""Means and standard errors: the few estimators that the measurements and the score share.

Standard errors are of the mean, from the sample variance (n − 1). Clustered ones follow the cluster-robust
variance of a mean, sum over clusters of the squared sum of residuals (Liang and Zeger 1986; for evaluations
of language models: Miller, "Adding Error Bars to Evals", 2024, equation 4), with the finite-sample factor
G / (G − 1), so that clusters of one give the plain standard error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

__all__ = [
    "clustered_standard_error",
    "geometric_mean",
    "geometric_mean_error",
    "standard_error",
]


def geometric_mean(values: Iterable[float]) -> float:
    """exp(mean(log x)); ValueError where a value is not finite and positive, or there is none."""
    array = np.fromiter(values, dtype=np.float64)
    if array.size == 0 or not np.all(np.isfinite(array)) or np.any(array <= 0):
        raise ValueError(f"a geometric mean needs finite positive values, got {array.tolist()}")
    return float(np.exp(np.log(array).mean()))


def geometric_mean_error(errors: Sequence[float | None]) -> float | None:
    """Relative standard error of a geometric mean of independent values with these relative errors.

    log of the mean is the mean of the logs, so it is sqrt(Σ e²) / n; None where any of them is not known.
    """
    known = [error for error in errors if error is not None]
    return float(np.hypot.reduce(known) / len(known)) if known and len(known) == len(errors) else None


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean of `values`; None for fewer than two."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        return None
    return float(array.std(ddof=1) / np.sqrt(array.size))


def clustered_standard_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """Cluster-robust standard error of mean(values); None for fewer than two clusters.

    SE² = G/(G − 1) · Σ_g (Σ_{i in g} (x_i − x̄))² / n²
    """
    if len(values) != len(clusters):
        raise ValueError(f"each value needs its cluster, got {len(values)} and {len(clusters)}")
    array = np.asarray(values, dtype=np.float64)
    _, index = np.unique([str(cluster) for cluster in clusters], return_inverse=True)
    groups = int(index.max()) + 1 if array.size else 0
    if groups < 2:
        return None
    sums = np.bincount(index, weights=array - array.mean(), minlength=groups)
    return float(np.sqrt(groups / (groups - 1) * np.square(sums).sum()) / array.size)
