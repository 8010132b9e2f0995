"""Normalised dispersions of columns, as Seurat and Cell Ranger define them and scanpy computes them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import norm

from streamdr.core.blocks import Array, widen
from streamdr.errors import DataError
from streamdr.statistics.observed import Observed

DispersionFlavor = Literal["seurat", "cell_ranger"]
_ZERO_MEAN = 1e-12
"""What scanpy divides by in the place of a mean of zero."""
_PERCENTILES = np.arange(10, 105, 5)
"""The percentiles of the means between which Cell Ranger compares columns."""


class Exponentials(Observed):
    """The mean and the variance of exp(x) - 1 for the values x of each column: of counts that were logged."""

    kind = "exponentials"

    def __init__(self, n_cols: int, *, moments: bool = True) -> None:
        super().__init__(n_cols, moments=moments)

    def _taken(self, values: Array) -> Array:
        """Return the values before their logarithm was taken. Infinite ones stay infinite."""
        values = widen(values)
        taken = np.expm1(values)
        if np.fmin.reduce(taken, axis=None, initial=0.0) == -1.0:
            np.copyto(taken, values, where=np.isneginf(values))
        return taken


class Dispersions(NamedTuple):
    """The dispersions of columns."""

    means: Array
    """The means by which columns are compared: for Seurat, their logarithms."""
    dispersions: Array
    """The variance over the mean: for Seurat, its logarithm. NaN for a column without variance."""
    normalized: Array
    """How many deviations the dispersion is above that of columns with similar means."""


def dispersions_of(mean: Array, variance: Array, flavor: DispersionFlavor, n_bins: int) -> Dispersions:
    """Compare the dispersion of each column with those of the columns in its bin of means."""
    means = np.where(mean == 0, _ZERO_MEAN, mean)
    dispersions = variance / means
    if flavor == "seurat":
        dispersions = np.log(dispersions, out=np.full_like(means, np.nan), where=dispersions > 0)
        means = np.log1p(means)
    if not np.isfinite(means).all():
        raise DataError("the means of columns overflow: the flavors of dispersions take logged counts")
    edges = _equal_edges(means, n_bins) if flavor == "seurat" else _percentile_edges(means)
    bins = np.searchsorted(edges, means, side="left")
    normalized = np.full_like(means, np.nan)
    for number in np.unique(bins):
        inside = np.flatnonzero((bins == number) & ~np.isnan(dispersions))
        if len(inside):
            normalized[inside] = _normalized(dispersions[inside], flavor)
    # Where most columns of a bin have the same dispersion, the others are infinitely far from it.
    most = np.finfo(np.float64).max
    return Dispersions(means, dispersions, np.clip(normalized, -most, most))


def _normalized(dispersions: Array, flavor: DispersionFlavor) -> Array:
    """Return the dispersions of the columns in a bin, relative to their centre and their spread."""
    with np.errstate(divide="ignore", invalid="ignore"):  # equal dispersions have no spread
        if flavor == "cell_ranger":
            middle = np.median(dispersions)
            spread = np.median(np.abs(dispersions - middle) / norm.ppf(0.75))
            return np.asarray((dispersions - middle) / spread)
        if len(dispersions) == 1:  # Seurat gives the only column of a bin the value 1
            return dispersions / dispersions
        return np.asarray((dispersions - dispersions.mean()) / dispersions.std(ddof=1))


def _equal_edges(means: Array, n_bins: int) -> Array:
    """Return the edges of bins of equal width as `pandas.cut` makes them: the first one is a bit lower."""
    low, high = means.min(), means.max()
    if low == high:
        return np.linspace(low - (0.001 * abs(low) or 0.001), high + (0.001 * abs(high) or 0.001), n_bins + 1)
    edges = np.linspace(low, high, n_bins + 1)
    edges[0] -= 0.001 * (high - low)
    return edges


def _percentile_edges(means: Array) -> Array:
    """Return the edges at percentiles; fewer where many columns have the same mean."""
    return np.unique(np.r_[-np.inf, np.percentile(means, _PERCENTILES), np.inf])
