"""Bins of a column: edges at quantiles or at equal distances, and the bin of each value."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Array

_FEW = 64
"""Up to this many points, comparisons are faster than a binary search."""


def quantile_edges(column: Array, weights: Array, n_bins: int) -> Array:
    """Bin edges at quantiles; there are fewer edges where a value is frequent."""
    shares = np.arange(1, n_bins) / n_bins
    cuts = np.unique(np.quantile(column, shares, method="inverted_cdf", weights=weights))
    inner: Array = cuts[cuts > column.min()]
    return inner


def equal_edges(low: float, high: float, n_bins: int) -> Array:
    """The inner edges of bins of equal width; none for a constant column."""
    if low == high:
        return np.zeros(0)
    # Halves first: the difference of two large numbers may overflow.
    shares = np.arange(1, n_bins) / n_bins
    return np.unique(2.0 * (low / 2 + shares * (high / 2 - low / 2)))


def number_at_or_below(points: Array, values: Array) -> Array:
    """The number of ascending points at or below each value.

    With few points, comparing all values with each point is faster than a binary search.
    """
    if len(points) > _FEW:
        return np.searchsorted(points, values, side="right")
    exact = points.astype(values.dtype)
    if not np.array_equal(exact, points):  # a rounded edge could move values to another bin
        exact, values = points, values.astype(np.float64)
    found, above = np.zeros(len(values), np.uint8), np.empty(len(values), bool)
    for point in exact:
        np.greater_equal(values, point, out=above)
        found += above.view(np.uint8)
    return found
