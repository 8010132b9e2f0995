"""Quadratic forms of columns, and their residuals after a choice of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamdr.core.blocks import Array

_ROUNDING = 1e-12


@dataclass(frozen=True)
class QuadraticForm:
    """A sum of matrices, of outer products of the rows of `vectors`, and of a diagonal `added`.

    It is the scatter of merged groups: their scatters add up, and each group adds the outer product of its
    difference from the common mean. Nothing is subtracted. The sum is not formed: a search uses few of its
    rows.
    """

    matrices: Sequence[Array]
    vectors: Array
    added: Array = field(default_factory=lambda: np.zeros(0))

    def row(self, column: int) -> Array:
        """One row of the matrix."""
        total: Array = self.vectors[:, column] @ self.vectors
        for matrix in self.matrices:
            total += matrix[column]
        if len(self.added):
            total[column] += self.added[column]
        return total

    def diagonal(self) -> Array:
        """The diagonal of the matrix."""
        total: Array = np.einsum("ij,ij->j", self.vectors, self.vectors)
        for matrix in self.matrices:
            total += np.diagonal(matrix)
        return total + self.added if len(self.added) else total

    def block(self, columns: Sequence[int] | Array) -> Array:
        """The matrix of some columns."""
        chosen = np.asarray(columns, np.intp)
        part = self.vectors[:, chosen]
        total: Array = part.T @ part
        for matrix in self.matrices:
            total += matrix[np.ix_(chosen, chosen)]
        if len(self.added):
            total.flat[:: len(chosen) + 1] += self.added[chosen]
        return total


class Basis:
    """The chosen columns, orthonormalised in a quadratic form (Gram-Schmidt).

    `weights[i]` holds the products of the i-th of them with every column: a row of a Cholesky factor. Adding
    a column takes time proportional to the number of columns times the number of those chosen.
    """

    def __init__(self, form: QuadraticForm, limit: int) -> None:
        self.form = form
        self.left = form.diagonal()
        self.weights = np.zeros((limit, len(self.left)))
        self.size = 0

    def add(self, column: int) -> tuple[float, Array]:
        """Add a column. Returns its residual length, and its products with each column."""
        before = self.weights[: self.size]
        root = float(np.sqrt(self.left[column]))
        weights = (self.form.row(column) - before[:, column] @ before) / root
        weights[column] = root
        self.weights[self.size] = weights
        self.size += 1
        self.left = self.left - weights**2
        return root, weights


class Residual:
    """Another quadratic form of the residuals of all columns after projection on a basis."""

    def __init__(self, form: QuadraticForm, limit: int) -> None:
        self.form = form
        self.diagonal = form.diagonal()
        self._raw = np.zeros((limit, len(self.diagonal)))
        self._cross = np.zeros((limit, len(self.diagonal)))
        self._size = 0

    def take(self, column: int, root: float, weights: Array, basis: Basis) -> tuple[Array, float]:
        """Project out the column that was added to the basis last.

        Returns its scaled products with the residuals of all columns before the projection, and with itself.
        """
        raw, cross, before = (array[: self._size] for array in (self._raw, self._cross, basis.weights))
        plain = (self.form.row(column) - before[:, column] @ raw) / root
        earlier = cross[:, column] / root
        row = plain - earlier @ before
        own = float(row[column]) / root
        self.diagonal = self.diagonal - 2 * weights * row + own * weights**2
        cross -= np.outer(earlier, weights)
        self._raw[self._size] = plain
        self._cross[self._size] = row - own * weights
        self._size += 1
        return row, own


@dataclass(frozen=True)
class Split:
    """The linearly independent columns in a form."""

    independent: list[int]
    inverse: Array
    """The inverse of the matrix of the independent columns."""
    replaceable: Array
    """The mask of independent columns that a dependent one could replace."""


def split(form: QuadraticForm, columns: Sequence[int], useless: Array, tolerance: float) -> Split:
    """Find the independent columns, in order: those that the columns before do not explain."""
    length = form.diagonal()
    kept = [column for column in columns if not useless[column]]
    scale = 1.0 / np.sqrt(length[kept])
    matrix = form.block(kept) * scale * scale[:, None]
    factor, order = _echelon(matrix, tolerance)
    free = [number for number in range(len(kept)) if number not in set(order)]
    chosen = np.ix_(order, order)
    lower = np.tril(factor[chosen])
    root = np.linalg.inv(lower)
    inverse = root.T @ root
    # The coefficients of the dependent columns, in units of length one.
    coefficients = inverse @ matrix[np.ix_(order, free)]
    replaceable: Array = np.any(coefficients**2 > tolerance, axis=1)
    inverse = inverse * scale[order] * scale[order][:, None]
    independent = [kept[number] for number in order]
    return Split(independent, inverse, replaceable)


def _echelon(matrix: Array, tolerance: float) -> tuple[Array, list[int]]:
    """The Cholesky factor of a matrix of unit diagonal, without the columns that others explain."""
    try:
        factor: Array = np.linalg.cholesky(matrix)
        if (np.diagonal(factor) ** 2 > tolerance).all():
            return factor, list(range(len(matrix)))
    except np.linalg.LinAlgError:
        pass
    size = len(matrix)
    factor, left = np.zeros((size, size)), np.diagonal(matrix).copy()
    order: list[int] = []
    for column in range(size):
        if left[column] <= tolerance:
            continue
        before = factor[:, np.array(order, np.intp)]
        weights = matrix[column] - before @ before[column]
        factor[:, column] = weights / np.sqrt(left[column])
        left -= factor[:, column] ** 2
        order.append(column)
    return factor, order


def first_best(scores: Array, scale: float = 1.0) -> int:
    """The index of the largest score; of scores that are equal up to rounding, the first.

    `scale` is the scale of the scores: 1 for shares.
    """
    best = float(np.max(scores))
    if not np.isfinite(best):
        return int(np.argmax(scores))
    return int(np.argmax(scores >= best - _ROUNDING * max(scale, abs(best))))


def tolerance_of(product_dtype: np.dtype[Any]) -> float:
    """The unexplained share of a column below which it counts as dependent."""
    return 1e-5 if product_dtype == np.float32 else 1e-11
