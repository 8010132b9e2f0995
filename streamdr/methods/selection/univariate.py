"""Univariate scores of columns: F statistics, correlations, mutual information."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc, xlogy

from streamdr.core.blocks import Array

_LARGEST = float(np.finfo(np.float64).max)


class UnivariateStatistics(NamedTuple):
    """The statistics of each column, with p-values."""

    f: Array
    correlation: Array
    """The correlation with a numeric target; with classes, the correlation ratio, which has no sign."""
    p_values: Array
    freedom: float
    """The residual degrees of freedom: the weight of the rows minus the number of means."""


def by_classes(
    within: Array, between: Array, weight: float, n_classes: int, constant: Array
) -> UnivariateStatistics:
    """One-way analysis of variance, from the squares of each column within and between classes.

    F is 0 for a constant column, and the largest float for one that is constant within each class only.
    """
    freedom = max(weight - n_classes, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        f = (between / (n_classes - 1)) / (within / freedom)
        ratio = np.sqrt(between / (between + within))
    f = np.where(constant, 0.0, np.minimum(np.nan_to_num(f, nan=0.0, posinf=_LARGEST), _LARGEST))
    ratio = np.where(constant, 0.0, np.nan_to_num(ratio, nan=0.0))
    return UnivariateStatistics(f, ratio, _p_values(n_classes - 1, freedom, f, constant), freedom)


def by_numbers(
    squares: Array, products: Array, target: float, weight: float, constant: Array
) -> UnivariateStatistics:
    """Correlations with the target, and the F statistics of regressions on each column alone."""
    freedom = max(weight - 2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = np.where(constant, 0.0, products / np.sqrt(squares * target))
        correlation = np.clip(np.nan_to_num(correlation, nan=0.0), -1.0, 1.0)
        # 1 - r^2 is computed from the residual squares: near r = 1, the difference would cancel.
        residual = np.maximum(target - products**2 / np.where(constant, 1.0, squares), 0.0) / target
        f = correlation**2 / residual * freedom
    f = np.where(constant, 0.0, np.minimum(np.nan_to_num(f, nan=0.0, posinf=_LARGEST), _LARGEST))
    return UnivariateStatistics(f, correlation, _p_values(1, freedom, f, constant), freedom)


def _p_values(n_means: int, freedom: float, f: Array, constant: Array) -> Array:
    """The p-values of F; 1 without degrees of freedom."""
    if not freedom > 0:
        return np.ones(len(f))
    return np.where(constant, 1.0, fdtrc(n_means, freedom, f))


def mutual_information(table: Array, *, corrected: bool) -> float:
    """The mutual information of rows and columns of a table of counts, in nats.

    With few counts the estimate is biased upwards. The correction of Miller and Madow subtracts the expected
    bias, (cells - rows - columns + 1) / 2n, where empty cells, rows and columns do not count.
    """
    total = float(table.sum())
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    filled = table > 0
    expected = np.outer(rows, columns)
    information = float(
        (xlogy(table, np.where(filled, table, 1.0)) - table * np.log(np.where(filled, expected, 1.0))).sum()
    )
    information = information / total + np.log(total)
    if corrected:
        used = np.count_nonzero(filled) - np.count_nonzero(rows) - np.count_nonzero(columns) + 1
        information -= used / (2 * total)
    return max(float(information), 0.0)
