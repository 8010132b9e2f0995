"""What a column by itself tells of a target: F statistics, correlations, mutual information."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc, xlogy

from streamdr.blocks import Array

_LARGEST = float(np.finfo(np.float64).max)


class Tested(NamedTuple):
    """A statistic of each column, how it would be ranked, and how likely chance alone would give as much."""

    f: Array
    correlation: Array
    """With a target of numbers the correlation; with classes the correlation ratio, which has no sign."""
    p_values: Array
    freedom: float
    """What the rows weigh beyond the means that are taken off them."""


def by_classes(within: Array, between: Array, weight: float, n_classes: int, constant: Array) -> Tested:
    """One-way analysis of variance, from the squares of each column within and between classes.

    A column that is constant tells nothing; one that is so within each class, as much as a number can say.
    """
    freedom = max(weight - n_classes, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        f = (between / (n_classes - 1)) / (within / freedom)
        ratio = np.sqrt(between / (between + within))
    f = np.where(constant, 0.0, np.minimum(np.nan_to_num(f, nan=0.0, posinf=_LARGEST), _LARGEST))
    ratio = np.where(constant, 0.0, np.nan_to_num(ratio, nan=0.0))
    return Tested(f, ratio, _chance(n_classes - 1, freedom, f, constant), freedom)


def by_numbers(squares: Array, products: Array, target: float, weight: float, constant: Array) -> Tested:
    """Correlations with the target, and the F statistics of regressions on each column alone."""
    freedom = max(weight - 2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = np.where(constant, 0.0, products / np.sqrt(squares * target))
        correlation = np.clip(np.nan_to_num(correlation, nan=0.0), -1.0, 1.0)
        # 1 - r^2 from the squares that are left: near 1, r itself has no digits to tell.
        left = np.maximum(target - products**2 / np.where(constant, 1.0, squares), 0.0) / target
        f = correlation**2 / left * freedom
    f = np.where(constant, 0.0, np.minimum(np.nan_to_num(f, nan=0.0, posinf=_LARGEST), _LARGEST))
    return Tested(f, correlation, _chance(1, freedom, f, constant), freedom)


def _chance(n_means: int, freedom: float, f: Array, constant: Array) -> Array:
    """How likely chance gives as much; surely, where rows weigh too little to tell."""
    if not freedom > 0:
        return np.ones(len(f))
    return np.where(constant, 1.0, fdtrc(n_means, freedom, f))


def mutual_information(table: Array, *, corrected: bool) -> float:
    """The mutual information of rows and columns of a table of counts, in nats.

    Cells that are few seem to tell more than they do. The correction of Miller and Madow takes off what is
    expected of chance, (cells - rows - columns + 1) / 2n, where those that are empty do not count.
    """
    total = float(table.sum())
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    there = table > 0
    expected = np.outer(rows, columns)
    information = float(
        (xlogy(table, np.where(there, table, 1.0)) - table * np.log(np.where(there, expected, 1.0))).sum()
    )
    information = information / total + np.log(total)
    if corrected:
        used = np.count_nonzero(there) - np.count_nonzero(rows) - np.count_nonzero(columns) + 1
        information -= used / (2 * total)
    return max(float(information), 0.0)
