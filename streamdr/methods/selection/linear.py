"""The score of a linear regression on some columns on a held-out fold, from moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamdr.core.blocks import Array
from streamdr.methods.selection.quadratic_forms import Basis, QuadraticForm, Residual, split

Scoring = Literal["r2", "neg_mean_squared_error"]


@dataclass(frozen=True)
class LinearFold:
    """Training and test scatters of columns and target (the last).

    The test scatter is about the training means, which are part of the regression.
    """

    train: QuadraticForm
    test: QuadraticForm
    useless: Array
    """The mask of columns that are constant in the training rows."""
    unit: float
    """The divisor of squared errors: the scatter of the held-out target, or the weight of its rows."""
    scoring: Scoring
    tolerance: float

    @property
    def n_columns(self) -> int:
        """The number of candidate columns."""
        return len(self.useless)

    @property
    def scale(self) -> float:
        """The scale of the scores: 1 for r2, else the error of predicting the mean."""
        return 1.0 if self.scoring == "r2" else float(self.test.diagonal()[-1]) / self.unit

    def start(self, limit: int) -> LinearState:
        """A state without columns, with room for `limit` columns."""
        return LinearState(self, limit)

    def scored(self, errors: Array | float) -> Array:
        """The scores of squared errors."""
        share = np.asarray(errors) / self.unit
        return 1.0 - share if self.scoring == "r2" else -share

    def removals(self, columns: Sequence[int]) -> Array:
        """The score without each of `columns`; the last entry is the score with all of them.

        Without column j, the coefficients are b - (b_j / p_jj) p_j, where p_j is a column of the inverse.
        """
        apart = split(self.train, columns, self.useless, self.tolerance)
        inverse, inside = apart.inverse, apart.independent
        target = self.n_columns
        coefficients = inverse @ self.train.row(target)[inside]
        test = self.test.block([*inside, target])
        products, with_target, squares = test[:-1, :-1], test[:-1, -1], float(test[-1, -1])
        slope = with_target - products @ coefficients
        whole = squares - coefficients @ (with_target + slope)
        share = coefficients / np.diagonal(inverse)
        curvature = np.einsum("ij,ij->j", inverse, products @ inverse)
        errors = whole + 2 * share * (inverse @ slope) + share**2 * curvature
        errors = np.where(apart.replaceable, whole, errors)
        found = dict.fromkeys(columns, whole) | dict(zip(inside, errors, strict=True))
        return self.scored(np.array([*(found[column] for column in columns), whole]))


class LinearState:
    """The columns chosen so far, and the score with each further column.

    All arrays have an entry for the residual of every column and, as the last, of the target, after
    regression on the chosen columns.
    """

    def __init__(self, fold: LinearFold, limit: int) -> None:
        self.fold = fold
        self._basis = Basis(fold.train, limit)
        self._test = Residual(fold.test, limit)
        self._lengths = self._basis.left.copy()
        self._train_target = fold.train.row(fold.n_columns)
        self._test_target = fold.test.row(fold.n_columns)

    @property
    def score(self) -> float:
        """The score of the columns chosen so far; without columns, the mean is predicted."""
        return float(self.fold.scored(self._test.diagonal[-1]))

    def additions(self) -> Array:
        """The score with each further column. A column that the chosen ones explain adds nothing."""
        explained = self._explained()[:-1]
        left = np.where(explained, 1.0, self._basis.left[:-1])
        slope = np.where(explained, 0.0, self._train_target[:-1]) / left
        gain = slope * (2 * self._test_target[:-1] - slope * self._test.diagonal[:-1])
        return self.fold.scored(self._test.diagonal[-1] - gain)

    def add(self, column: int) -> None:
        """Choose a column."""
        if self._explained()[column]:
            return
        root, weights = self._basis.add(column)
        row, own = self._test.take(column, root, weights, self._basis)
        share = weights[-1]
        self._test_target = self._test_target - weights * row[-1] - share * row + share * own * weights
        self._train_target = self._train_target - share * weights

    def _explained(self) -> Array:
        """The mask of columns that the chosen ones explain, or that are constant."""
        found = self._basis.left <= self.fold.tolerance * self._lengths
        found[:-1] |= self.fold.useless
        return found
