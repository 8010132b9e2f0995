"""How well a linear regression on some columns predicts a fold that it has not seen, from moments alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamdr.blocks import Array
from streamdr.methods.select_forms import Basis, Form, Residual, split

Scoring = Literal["r2", "neg_mean_squared_error"]


@dataclass(frozen=True)
class LinearFold:
    """Scatters of columns and target (the last), of the rows to learn from and of those held out.

    The latter are about the means of the former, since these are what a regression predicts around.
    """

    train: Form
    test: Form
    useless: Array
    """Columns that are constant in the rows to learn from."""
    unit: float
    """What squared errors are divided by: the held-out target's scatter, or the weight of its rows."""
    scoring: Scoring
    tolerance: float

    @property
    def n_columns(self) -> int:
        """How many columns there are to choose from."""
        return len(self.useless)

    @property
    def scale(self) -> float:
        """How large scores are: that of predicting the mean, where they are not shares."""
        return 1.0 if self.scoring == "r2" else float(self.test.diagonal()[-1]) / self.unit

    def start(self, limit: int) -> LinearState:
        """Nothing chosen, and room for so many columns."""
        return LinearState(self, limit)

    def judged(self, errors: Array | float) -> Array:
        """The scores of squared errors."""
        share = np.asarray(errors) / self.unit
        return 1.0 - share if self.scoring == "r2" else -share

    def removals(self, columns: Sequence[int]) -> Array:
        """The score without each of some columns, and as the last that with all of them.

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
        spread = np.einsum("ij,ij->j", inverse, products @ inverse)
        errors = whole + 2 * share * (inverse @ slope) + share**2 * spread
        errors = np.where(apart.replaceable, whole, errors)
        found = dict.fromkeys(columns, whole) | dict(zip(inside, errors, strict=True))
        return self.judged(np.array([*(found[column] for column in columns), whole]))


class LinearState:
    """Columns that were chosen one after the other, and what each other would add.

    All arrays have an entry for every column, and for the target as the last: of what is left of it when the
    chosen columns have explained what they can.
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
        """That of the columns chosen so far; of none, the mean is what is predicted."""
        return float(self.fold.judged(self._test.diagonal[-1]))

    def additions(self) -> Array:
        """The score with each column more. One that the chosen ones explain adds nothing."""
        explained = self._explained()[:-1]
        left = np.where(explained, 1.0, self._basis.left[:-1])
        slope = np.where(explained, 0.0, self._train_target[:-1]) / left
        gain = slope * (2 * self._test_target[:-1] - slope * self._test.diagonal[:-1])
        return self.fold.judged(self._test.diagonal[-1] - gain)

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
        found = self._basis.left <= self.fold.tolerance * self._lengths
        found[:-1] |= self.fold.useless
        return found
