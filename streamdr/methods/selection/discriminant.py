"""The score of linear discriminants of some columns on a held-out fold, from moments.

Accuracy is not a function of moments. The share of variance between classes is: of held-out rows, along the
discriminants of the training rows,

    1 - sum_i |z_i - mean of z in the class of i|^2 / sum_i |z_i - mean of z|^2

where the means are those of the training rows. Along the discriminants every class has unit covariance. They
span W^-1 B, with B the class means; any basis orthonormal in W gives the same score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamdr.core.blocks import Array
from streamdr.methods.selection.quadratic_forms import Basis, QuadraticForm, Residual, split

_BATCH = 1 << 17
"""The number of entries of the small matrices of a batch."""
_EPS = float(np.finfo(np.float64).eps)
_SMALLEST = 1e-200


@dataclass(frozen=True)
class DiscriminantFold:
    """Training scatter within classes and class means; the scatters of held-out rows about these means.

    `means` holds a basis of the differences between class means: one row less than there are classes.
    """

    within: QuadraticForm
    means: Array
    errors: QuadraticForm
    """The scatter of held-out rows about the mean of their class."""
    total: QuadraticForm
    """The scatter of held-out rows about the mean of all rows."""
    useless: Array
    """The mask of columns that are constant in the training rows."""
    tolerance: float

    @property
    def n_columns(self) -> int:
        """The number of candidate columns."""
        return len(self.useless)

    @property
    def scale(self) -> float:
        """The scale of the scores, which are shares of 1."""
        return 1.0

    def start(self, limit: int) -> DiscriminantState:
        """A state without columns, with room for `limit` columns."""
        return DiscriminantState(self, limit)

    def removals(self, columns: Sequence[int]) -> Array:
        """The score without each of `columns`; the last entry is the score with all of them."""
        apart = split(self.within, columns, self.useless, self.tolerance)
        inside, inverse = apart.independent, apart.inverse
        directions = inverse @ self.means[:, inside].T
        means = self.means[:, inside] @ directions
        corner = np.diagonal(inverse)
        fewer = len(inside) - 1 < len(self.means)
        whole, without = [], []
        for form in (self.errors, self.total):
            matrix = form.block(inside)
            half = inverse @ matrix
            own = np.einsum("ij,ji->i", half, inverse) / corner
            trace = float(np.trace(half))
            outer = directions.T @ matrix @ directions
            everything = trace if len(inside) < len(self.means) else _traces(means, outer[None])[0]
            whole.append(everything)
            if fewer:
                without.append(trace - own)
            else:
                beside = (half @ directions).T
                without.append(_without_each(means, outer, directions.T, beside, own, corner))
        score = float(_share(*whole)) if inside else 0.0
        scores = np.zeros(len(inside)) if len(inside) < 2 else _share(*without)
        scores = np.where(apart.replaceable, score, scores)
        found = dict.fromkeys(columns, score) | dict(zip(inside, scores, strict=True))
        return np.array([*(found[column] for column in columns), score])


class DiscriminantState:
    """The columns chosen so far, and the score with each further column."""

    def __init__(self, fold: DiscriminantFold, limit: int) -> None:
        self.fold = fold
        self._basis = Basis(fold.within, limit)
        self._lengths = self._basis.left.copy()
        self._left_means = fold.means.copy()
        self._means = np.zeros((len(fold.means), len(fold.means)))
        self._held_out = [_HeldOutForm(form, limit, fold.means) for form in (fold.errors, fold.total)]

    @property
    def score(self) -> float:
        """The score of the columns chosen so far; 0 for none."""
        if not self._basis.size:
            return 0.0
        return float(_share(*(self._value(side) for side in self._held_out)))

    def additions(self) -> Array:
        """The score with each further column. A column that the chosen ones explain adds nothing."""
        explained = self._explained()
        left = np.where(explained, 1.0, self._basis.left)
        means = self._left_means / np.sqrt(left)
        some = self._basis.size + 1 < len(means)
        errors, total = (
            side.trace + side.left.diagonal / left if some else side.with_each(self._means, means, left)
            for side in self._held_out
        )
        return np.where(explained, self.score, _share(errors, total))

    def add(self, column: int) -> None:
        """Choose a column."""
        if self._explained()[column]:
            return
        root, weights = self._basis.add(column)
        mean = self._left_means[:, column] / root
        for side in self._held_out:
            side.add(column, root, weights, mean, self._basis)
        self._left_means = self._left_means - np.outer(mean, weights)
        self._means = self._means + np.outer(mean, mean)

    def _value(self, side: _HeldOutForm) -> float:
        """The trace of a form along the discriminants of the chosen columns."""
        if self._basis.size < len(self._means):
            return side.trace
        return float(_traces(self._means, side.outer[None])[0])

    def _explained(self) -> Array:
        """The mask of columns that the chosen ones explain, or that are constant."""
        found: Array = (self._basis.left <= self.fold.tolerance * self._lengths) | self.fold.useless
        return found


class _HeldOutForm:
    """A quadratic form of held-out rows, along the discriminants of the chosen columns."""

    def __init__(self, form: QuadraticForm, limit: int, means: Array) -> None:
        self.left = Residual(form, limit)
        self.trace = 0.0
        self.outer = np.zeros((len(means), len(means)))
        self._beside = np.zeros_like(means)
        """Products of the residual of each column with the chosen ones, weighted by their means."""

    def add(self, column: int, root: float, weights: Array, mean: Array, basis: Basis) -> None:
        """Choose a column."""
        own_beside = self._beside[:, column] / root
        row, own = self.left.take(column, root, weights, basis)
        self.trace += own
        mixed = np.outer(own_beside, mean)
        self.outer = self.outer + mixed + mixed.T + own * np.outer(mean, mean)
        self._beside = self._beside - np.outer(own_beside, weights) + np.outer(mean, row - own * weights)

    def with_each(self, means: Array, new: Array, left: Array) -> Array:
        """The trace along the discriminants with each further column, whose means are `new`."""
        beside, own = self._beside / np.sqrt(left), self.left.diagonal / left
        found = np.empty(len(own))
        for part in _batches(len(own), len(means)):
            mean, along = new[:, part].T, beside[:, part].T
            outer = mean[:, :, None] * mean[:, None, :]
            mixed = along[:, :, None] * mean[:, None, :]
            sums = self.outer + mixed + mixed.transpose(0, 2, 1) + own[part, None, None] * outer
            found[part] = _traces(means + outer, sums)
        return found


def _share(errors: Array | float, total: Array | float) -> Array:
    """The share of the variance between classes; 0 where there is no variance."""
    some = np.asarray(total) > 0
    share: Array = np.where(some, 1.0 - errors / np.where(some, total, 1.0), 0.0)
    return share


def _without_each(
    means: Array, outer: Array, directions: Array, beside: Array, own: Array, corner: Array
) -> Array:
    """The trace along the discriminants without each of the columns."""
    found = np.empty(len(own))
    for part in _batches(len(own), len(means)):
        mean, along = directions[:, part].T, beside[:, part].T
        lost = mean[:, :, None] * mean[:, None, :] / corner[part, None, None]
        mixed = along[:, :, None] * mean[:, None, :] / corner[part, None, None]
        sums = outer - mixed - mixed.transpose(0, 2, 1) + own[part, None, None] * lost
        found[part] = _traces(means - lost, sums)
    return found


def _traces(means: Array, sums: Array) -> Array:
    """tr(means^-1 sums) for each matrix. Directions in which means do not differ contribute nothing."""
    size = means.shape[-1]
    scale = np.maximum(np.trace(means, axis1=-2, axis2=-1), _SMALLEST)
    firm = means + (_EPS * scale)[..., None, None] * np.eye(size)
    found: Array = np.trace(np.linalg.solve(firm, sums), axis1=-2, axis2=-1)
    return found


def _batches(length: int, order: int) -> list[slice]:
    """Slices of candidates whose small matrices fit into a batch."""
    step = max(1, _BATCH // (order * order))
    return [slice(start, start + step) for start in range(0, length, step)]
