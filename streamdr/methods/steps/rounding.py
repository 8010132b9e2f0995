"""Comparisons that rounding does not decide.

Sums of dense and of sparse rows are rounded differently, and so are those of rows in another order. The
columns that a step selects must not depend on that: columns of counts often have equal means and variances.
"""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Array

ROUNDING = 2.0**-36
"""The largest relative difference of two numbers that counts as rounding."""


def without_rounding(values: Array) -> Array:
    """Return values without NaN, where those that differ by rounding only are equal to the least of them."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    low, high = ascending[:-1], ascending[1:]
    with np.errstate(invalid="ignore"):  # two infinite values are equal
        apart = high - low > ROUNDING * np.minimum(np.abs(low), np.abs(high))
    starts = np.flatnonzero(np.r_[True, apart])
    equal = np.empty_like(values)
    equal[order] = np.repeat(ascending[starts], np.diff(np.r_[starts, len(values)]))
    return equal


def is_above(values: Array, limit: float | Array) -> Array:
    """Return the mask of the values above a limit, by more than rounding."""
    above: Array = values > limit + ROUNDING * np.abs(limit)
    return above


def is_below(values: Array, limit: float) -> Array:
    """Return the mask of the values below a limit, by more than rounding."""
    below: Array = values < limit - ROUNDING * np.abs(limit)
    return below
