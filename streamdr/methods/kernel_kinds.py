"""A kernel of any make between rows of a sample: named, a user's function, or a matrix that is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streamdr.accumulators import Sample
from streamdr.blocks import Array
from streamdr.errors import DataError
from streamdr.features import Features, FunctionColumns, KernelColumns, StoredColumns
from streamdr.kernels import (
    Kernel,
    KernelFunction,
    Side,
    function_diagonal,
    function_matrix,
    kernel_matrix,
)

_MEDIAN_ROWS = 1000
_ORIGIN_ROWS = 2000
_LOPSIDED = 1e-8
_FAR = 1e4
"""Differences of larger squares, in widths of an rbf, are off by a thousandth in single precision."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Some rows of the data, by their numbers where these are known, with their weights."""

    rows: Array
    numbers: Array
    weights: Array

    @classmethod
    def of(cls, sample: Sample) -> Pool:
        """A sample, in the order of the data."""
        order = np.argsort(sample.numbers, kind="stable")
        return cls(sample.rows[order], sample.numbers[order], sample.weights[order])

    @classmethod
    def made(cls, rows: Array) -> Pool:
        """Rows that need not be any of the data."""
        return cls(np.asarray(rows, np.float64), np.full(len(rows), -1), np.ones(len(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, chosen: Array | slice) -> Pool:
        """Some of them."""
        return Pool(self.rows[chosen], self.numbers[chosen], self.weights[chosen])

    @property
    def mean(self) -> Array:
        """The weighted mean of the rows."""
        mean: Array = self.weights @ self.rows / self.weights.sum()
        return mean


class KernelKind(Protocol):
    """What kernel methods ask of a kernel."""

    @property
    def definite(self) -> bool:
        """Whether it is positive semidefinite by its form."""

    def matrix(self, left: Pool, right: Pool) -> Array:
        """Its values between all rows of two pools, in float64."""

    def diagonal(self, pool: Pool) -> Array:
        """Its value of each row and itself."""

    def columns(self, landmarks: Pool) -> Features:
        """Its values between rows that will be streamed and landmarks."""

    def fields(self) -> dict[str, Any]:
        """What a model keeps of it."""


@dataclass(frozen=True, eq=False)
class Named:
    """One of the kernels that are known by name."""

    kernel: Kernel
    origin: Array

    @property
    def definite(self) -> bool:
        """By the kernel's form."""
        return self.kernel.definite

    def matrix(self, left: Pool, right: Pool) -> Array:
        """By a product."""
        return kernel_matrix(self.kernel, Side(left.rows, self.origin), Side(right.rows, self.origin))

    def diagonal(self, pool: Pool) -> Array:
        """Mostly known without looking."""
        return self.kernel.diagonal(Side(pool.rows, self.origin))

    def columns(self, landmarks: Pool) -> Features:
        """By a product a tile."""
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
class Function:
    """A user's function."""

    function: KernelFunction
    n_features: int
    definite = False

    def matrix(self, left: Pool, right: Pool) -> Array:
        """By calling it."""
        matrix = function_matrix(self.function, left.rows, right.rows)
        if not np.isfinite(matrix).all():
            raise DataError("the kernel function gives values that are not finite")
        return matrix

    def diagonal(self, pool: Pool) -> Array:
        """By calling it."""
        return function_diagonal(self.function, pool.rows)

    def columns(self, landmarks: Pool) -> Features:
        """By calling it."""
        return FunctionColumns(self.function, landmarks.rows)

    def fields(self) -> dict[str, Any]:
        """The function itself, which cannot be saved."""
        return {"kernel": "function", "function": self.function, "origin": np.zeros(self.n_features)}


@dataclass(frozen=True, eq=False)
class Stored:
    """A matrix of values that were computed before: a row of data holds a row's values with all rows."""

    n_rows: int
    definite = False

    def matrix(self, left: Pool, right: Pool) -> Array:
        """By looking them up."""
        return left.rows[:, right.numbers]

    def diagonal(self, pool: Pool) -> Array:
        """By looking them up."""
        diagonal: Array = pool.rows[np.arange(len(pool)), pool.numbers]
        return diagonal

    def columns(self, landmarks: Pool) -> Features:
        """By picking columns."""
        return StoredColumns(landmarks.numbers)

    def fields(self) -> dict[str, Any]:
        """Nothing but that it was given."""
        return {"kernel": "precomputed", "origin": np.zeros(self.n_rows)}


def symmetric(kind: KernelKind, pool: Pool) -> Array:
    """The kernel between the rows of a pool; refused, with the worst pair, where k(x, y) is not k(y, x)."""
    matrix = kind.matrix(pool, pool)
    if isinstance(kind, Named):
        if kind.kernel.at_itself is not None:  # far from the origin, distances of zero are rounded too
            np.fill_diagonal(matrix, kind.kernel.at_itself)
        return matrix
    apart = np.abs(matrix - matrix.T)
    i, j = divmod(int(np.argmax(apart)), len(matrix))
    if apart[i, j] > _LOPSIDED * np.abs(matrix).max():
        first, second = pool.numbers[i], pool.numbers[j]
        raise DataError(
            f"the kernel is not symmetric: its value at ({first}, {second}) is {matrix[i, j]:.6g}, and at "
            f"({second}, {first}) {matrix[j, i]:.6g}; a kernel has k(x, y) = k(y, x)"
        )
    return matrix


def is_narrow(kind: KernelKind, pool: Pool) -> bool:
    """Whether rows are too many widths of an rbf from the origin for distances in single precision."""
    if not isinstance(kind, Named) or kind.kernel.name != "rbf":
        return False
    squares = Side(pool.rows, kind.origin).squares
    return kind.kernel.gamma * float(squares.max()) > _FAR


def column_origin(kind: KernelKind, pool: Pool, landmarks: Pool) -> Array:
    """Near the means of the kernel's columns over all rows: those over some of a sample."""
    some = pool.where(slice(None, None, max(1, len(pool) // _ORIGIN_ROWS)))
    origin: Array = some.weights @ kind.matrix(some, landmarks) / some.weights.sum()
    return origin


def median_gamma(pool: Pool) -> float:
    """1 / (2 median distance^2), over pairs of up to a thousand rows (the median heuristic)."""
    step = max(1, len(pool) // _MEDIAN_ROWS)
    side = Side(pool.rows[::step][:_MEDIAN_ROWS], pool.mean)
    squares = side.squares[:, None] + side.squares - 2 * (side.moved @ side.moved.T)
    apart = squares[np.triu_indices(len(squares), 1)]
    middle = float(np.median(apart)) if len(apart) else 0.0
    if middle <= 0.0:
        positive = apart[apart > 0]
        if not len(positive):
            raise DataError("every row is the same: there is no distance to take the median of")
        middle = float(np.median(positive))
    return 1 / (2 * middle)
