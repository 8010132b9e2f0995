"""Evaluation of a kernel between rows of a sample: a named kernel, a function, or a precomputed matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.row_functions import RowFunction, function_diagonal, function_matrix
from streamdr.errors import DataError
from streamdr.methods.kernel_pca.features import Features, FunctionColumns, KernelColumns, StoredColumns
from streamdr.methods.kernel_pca.kernels import Kernel, ShiftedRows, kernel_matrix
from streamdr.statistics.sample import Sample

_MEDIAN_ROWS = 1000
_ORIGIN_ROWS = 2000
_FAR = 1e4
"""gamma |x|^2 beyond which distances in single precision are off by a thousandth."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows in memory with their row numbers (-1 where unknown) and weights."""

    rows: Array
    numbers: Array
    weights: Array

    @classmethod
    def from_sample(cls, sample: Sample) -> Pool:
        """The rows of a sample, in the order of the data."""
        order = np.argsort(sample.numbers, kind="stable")
        return cls(sample.rows[order], sample.numbers[order], sample.weights[order])

    @classmethod
    def from_rows(cls, rows: Array) -> Pool:
        """Rows that need not be rows of the data."""
        return cls(np.asarray(rows, np.float64), np.full(len(rows), -1), np.ones(len(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, chosen: Array | slice) -> Pool:
        """Some of the rows."""
        return Pool(self.rows[chosen], self.numbers[chosen], self.weights[chosen])

    @property
    def mean(self) -> Array:
        """The weighted mean of the rows."""
        mean: Array = self.weights @ self.rows / self.weights.sum()
        return mean


class KernelEvaluator(Protocol):
    """A kernel as kernel methods use it."""

    @property
    def definite(self) -> bool:
        """Whether it is known to be positive semidefinite."""

    @property
    def asymmetry(self) -> float:
        """How much k(x, y) and k(y, x) may differ by rounding, relative to the largest value."""

    def matrix(self, left: Pool, right: Pool) -> Array:
        """Its values between all rows of two pools, in float64."""

    def diagonal(self, pool: Pool) -> Array:
        """Its value of each row and itself."""

    def columns(self, landmarks: Pool) -> Features:
        """The features of streamed rows: its values between rows and landmarks."""

    def fields(self) -> dict[str, Any]:
        """The fields of a model that describe it."""


@dataclass(frozen=True, eq=False)
class NamedKernel:
    """A kernel with a name."""

    kernel: Kernel
    origin: Array
    asymmetry = 0.0

    @property
    def definite(self) -> bool:
        """Whether it is known to be positive semidefinite."""
        return self.kernel.definite

    def matrix(self, left: Pool, right: Pool) -> Array:
        """Its values between all rows of two pools, by a matrix product."""
        return kernel_matrix(
            self.kernel, ShiftedRows(left.rows, self.origin), ShiftedRows(right.rows, self.origin)
        )

    def diagonal(self, pool: Pool) -> Array:
        """Its value of each row and itself."""
        return self.kernel.diagonal(ShiftedRows(pool.rows, self.origin))

    def columns(self, landmarks: Pool) -> Features:
        """Its values between rows and landmarks."""
        return KernelColumns([self.kernel], landmarks.rows, self.origin)

    def fields(self) -> dict[str, Any]:
        """Its name and parameters."""
        kernel = self.kernel
        return {
            "kernel": kernel.name,
            "gamma": kernel.gamma,
            "degree": kernel.degree,
            "coef0": kernel.coef0,
            "origin": self.origin,
        }


@dataclass(frozen=True, eq=False)
class FunctionKernel:
    """A user's function."""

    function: RowFunction
    n_features: int
    definite = False
    asymmetry = 1e-8

    def matrix(self, left: Pool, right: Pool) -> Array:
        """The values of the function."""
        matrix = function_matrix(self.function, left.rows, right.rows)
        if not np.isfinite(matrix).all():
            raise DataError("the kernel function returns values that are not finite")
        return matrix

    def diagonal(self, pool: Pool) -> Array:
        """The values of the function."""
        return function_diagonal(self.function, pool.rows)

    def columns(self, landmarks: Pool) -> Features:
        """The values of the function."""
        return FunctionColumns(self.function, landmarks.rows)

    def fields(self) -> dict[str, Any]:
        """The function itself, which cannot be saved."""
        return {"kernel": "function", "function": self.function, "origin": np.zeros(self.n_features)}


@dataclass(frozen=True, eq=False)
class PrecomputedKernel:
    """A precomputed kernel matrix: each row of the data holds the kernel of one sample with all samples."""

    n_rows: int
    dtype: np.dtype[Any]
    definite = False

    @property
    def asymmetry(self) -> float:
        """The square root of the rounding unit.

        The two inner products of a pair of rows, computed in the dtype of the matrix, may be added up in two
        orders. Then they differ by about sqrt(n_features) rounding errors.
        """
        dtype = self.dtype if self.dtype.kind == "f" else np.dtype(np.float64)
        return float(np.sqrt(np.finfo(dtype).eps))

    def matrix(self, left: Pool, right: Pool) -> Array:
        """The stored values."""
        return left.rows[:, right.numbers]

    def diagonal(self, pool: Pool) -> Array:
        """The stored values."""
        diagonal: Array = pool.rows[np.arange(len(pool)), pool.numbers]
        return diagonal

    def columns(self, landmarks: Pool) -> Features:
        """The columns of the landmarks."""
        return StoredColumns(landmarks.numbers)

    def fields(self) -> dict[str, Any]:
        """The name of the kernel only."""
        return {"kernel": "precomputed", "origin": np.zeros(self.n_rows)}


def symmetric(kind: KernelEvaluator, pool: Pool) -> Array:
    """The kernel between the rows of a pool. An asymmetric kernel is refused, with the worst pair."""
    matrix = kind.matrix(pool, pool)
    if isinstance(kind, NamedKernel):
        # Far from the origin, distances of zero are rounded too.
        if kind.kernel.constant_diagonal is not None:
            np.fill_diagonal(matrix, kind.kernel.constant_diagonal)
        return matrix
    apart = np.abs(matrix - matrix.T)
    i, j = divmod(int(np.argmax(apart)), len(matrix))
    if apart[i, j] > kind.asymmetry * np.abs(matrix).max():
        first, second = pool.numbers[i], pool.numbers[j]
        raise DataError(
            f"the kernel is not symmetric: its value at ({first}, {second}) is {matrix[i, j]:.6g}, and at "
            f"({second}, {first}) {matrix[j, i]:.6g}; a kernel has k(x, y) = k(y, x)"
        )
    return matrix


def is_narrow(kind: KernelEvaluator, pool: Pool) -> bool:
    """Whether rows are too far from the origin, in widths of an rbf, for distances in single precision."""
    if not isinstance(kind, NamedKernel) or kind.kernel.name != "rbf":
        return False
    squares = ShiftedRows(pool.rows, kind.origin).squares
    return kind.kernel.gamma * float(squares.max()) > _FAR


def column_origin(kind: KernelEvaluator, pool: Pool, landmarks: Pool) -> Array:
    """The approximate means of the kernel's columns, over some rows of a sample."""
    some = pool.where(slice(None, None, max(1, len(pool) // _ORIGIN_ROWS)))
    origin: Array = some.weights @ kind.matrix(some, landmarks) / some.weights.sum()
    return origin


def median_gamma(pool: Pool) -> float:
    """1 / (2 median distance^2), over pairs of up to a thousand rows (the median heuristic)."""
    step = max(1, len(pool) // _MEDIAN_ROWS)
    side = ShiftedRows(pool.rows[::step][:_MEDIAN_ROWS], pool.mean)
    squares = side.squares[:, None] + side.squares - 2 * (side.moved @ side.moved.T)
    apart = squares[np.triu_indices(len(squares), 1)]
    middle = float(np.median(apart)) if len(apart) else 0.0
    if middle <= 0.0:
        positive = apart[apart > 0]
        if not len(positive):
            raise DataError("every row is the same: there is no distance to take the median of")
        middle = float(np.median(positive))
    return 1 / (2 * middle)
