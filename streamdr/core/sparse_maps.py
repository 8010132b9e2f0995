"""Affine maps of sparse rows, with which scores lose no digits and the rows stay sparse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamdr.core.blocks import Array, SparseRows

_MOST_SQUARE = 3.0
"""The largest square of a mean, in variances of its column, with which the mean is taken off afterwards."""


@dataclass(frozen=True)
class SparseAffine:
    """(x - mean) @ matrix for sparse rows x, in their type.

    The mean is taken off after the product, as `mean @ matrix`, for columns whose mean is not far from zero.
    All others are well filled: at least three quarters of their values are stored. They are made dense, and
    the mean is taken off before. A row is mapped alike whatever rows are beside it.
    """

    shift: Array
    """The mean, in the type of the rows."""
    matrix: Array
    """The matrix, with zeros for the columns that are `far`."""
    level: Array
    """The image of the mean of all columns that are not `far`, and what the rounding of the others misses."""
    far: Array
    """The columns whose mean is far from zero."""
    far_matrix: Array
    """The rows of the matrix for these columns."""

    @classmethod
    def of(
        cls, mean: Array, matrix: Array, variance: Array | None, dtype: np.dtype[np.floating]
    ) -> SparseAffine:
        """Return the map of rows of a type; all means other than zero are far without a `variance`."""
        spread = np.zeros(len(mean)) if variance is None else variance
        far = np.flatnonzero(mean**2 > _MOST_SQUARE * spread)
        near, shift = matrix.astype(dtype), mean.astype(dtype)
        far_matrix = near[far]
        near[far] = 0.0
        rest = mean.copy()
        rest[far] -= shift[far]
        return cls(shift, near, (rest @ matrix).astype(dtype), far, far_matrix)

    def __call__(self, rows: SparseRows) -> Array:
        """Map rows."""
        mapped: Array = rows @ self.matrix
        mapped -= self.level
        if len(self.far):
            mapped += (rows[:, self.far].toarray() - self.shift[self.far]) @ self.far_matrix
        return mapped


def affine_bytes(n_rows: int, n_far: int) -> int:
    """The bytes that mapping rows takes besides the result, at most: the columns that are far, twice."""
    return 2 * 8 * n_rows * n_far
