"""Normalised dispersions of columns, as Seurat and Cell Ranger define them and scanpy computes them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import norm

from streamdr.core.blocks import Array, widen
from streamdr.errors import DataError
from streamdr.methods.steps.rounding import ROUNDING, without_rounding
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
    compared, levels = without_rounding(dispersions), without_rounding(means)
    if flavor == "seurat":
        dispersions, compared = (
            np.log(each, out=np.full_like(means, np.nan), where=each > 0) for each in (dispersions, compared)
        )
        with np.errstate(
            divide="ignore", invalid="ignore"
        ):  # of -1, the mean of exp(x) - 1 for very negative x
            means, levels = np.log1p(means), np.log1p(levels)
    if not np.isfinite(means).all():
        raise DataError(
            "select_variance: the means of columns overflow, or are not those of counts: the flavors of "
            "dispersions take logged counts: put log1p before it"
        )
    edges = _equal_edges(levels, n_bins) if flavor == "seurat" else np.percentile(levels, _PERCENTILES)
    bins = np.searchsorted(edges + ROUNDING * np.abs(edges), levels, side="left")
    normalized = np.full_like(means, np.nan)
    for number in np.unique(bins):
        inside = np.flatnonzero((bins == number) & ~np.isnan(compared))
        if len(inside):
            normalized[inside] = _normalized(compared[inside], flavor)
    # Where most columns of a bin have the same dispersion, the others are infinitely far from it.
    most = np.finfo(np.float64).max
    return Dispersions(means, dispersions, np.clip(normalized, -most, most))


def _normalized(dispersions: Array, flavor: DispersionFlavor) -> Array:
    """Return the dispersions of the columns in a bin, relative to their centre and their spread.

    NaN for equal dispersions, which have no spread.
    """
    if flavor == "seurat" and len(dispersions) == 1:  # Seurat gives the only column of a bin the value 1
        return np.ones(1)
    if dispersions.min() == dispersions.max():  # their mean may be rounded
        return np.full(len(dispersions), np.nan)
    if flavor == "seurat":
        return np.asarray((dispersions - dispersions.mean()) / dispersions.std(ddof=1))
    middle = np.median(dispersions)
    spread = np.median(np.abs(dispersions - middle) / norm.ppf(0.75))
    with np.errstate(divide="ignore", invalid="ignore"):  # most of them may be equal
        return np.asarray((dispersions - middle) / spread)


def _equal_edges(means: Array, n_bins: int) -> Array:
    """Return the edges between bins of equal width."""
    return np.linspace(means.min(), means.max(), n_bins + 1)[1:-1]
