"""Functions of two rows that a user passes: kernels and distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.errors import ParameterError

RowFunction = Callable[[Array, Array], Any]

_DIAGONAL_ROWS = 8


def function_matrix(function: RowFunction, left: Array, right: Array, parameter: str = "kernel") -> Array:
    """The matrix of a user's function between all rows.

    The function is called with two blocks if it returns their matrix, else with each pair of rows. Both are
    common: `sklearn.metrics.pairwise` has functions of blocks, scikit-learn's estimators take functions of
    two rows.
    """
    if _takes_blocks(function, left[:1], right):
        return np.asarray(function(left, right), np.float64)
    return np.array([[_number(function, x, y, parameter) for y in right] for x in left])


def function_diagonal(function: RowFunction, rows: Array) -> Array:
    """A user's function of each row and itself."""
    if not len(rows) or not _takes_blocks(function, rows[:1], rows):
        return np.array([_number(function, row, row) for row in rows])
    # A few rows at a time: one call per row would cost more than the values that are not used.
    parts = (rows[start : start + _DIAGONAL_ROWS] for start in range(0, len(rows), _DIAGONAL_ROWS))
    return np.concatenate([np.diag(np.asarray(function(part, part), np.float64)) for part in parts])


def _number(function: RowFunction, left: Array, right: Array, parameter: str = "kernel") -> float:
    value = function(left, right)
    if np.ndim(value) != 0:
        raise ParameterError(
            parameter,
            f"the {parameter} function returns an array of shape {np.shape(value)} for two rows: it must "
            "return a number, or for two arrays of rows their matrix",
        )
    return float(value)


def _takes_blocks(function: RowFunction, one: Array, several: Array) -> bool:
    try:
        # A product of two rows looks like one of blocks where there are as many rows as features.
        shapes = [np.shape(function(one, other)) for other in (several, several[:1])]
        return shapes == [(1, len(several)), (1, 1)]
    except (TypeError, ValueError, IndexError):
        return False
