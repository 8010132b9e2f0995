"""A large matrix with a known singular value decomposition, made by fast cosine transforms."""

from __future__ import annotations

import numpy as np
from scipy.fft import dct, idct


class CosineMatrix:
    """X = mean + U diag(s) V', where U and V are shuffled cosine bases and the covariance has variances d/i.

    The columns of U are the cosines of frequency 1 and up, which sum to zero: the covariance is exactly
    V diag(d/i) V'.  Signs and shuffles are drawn at random, so that no block of rows looks like another.
    """

    def __init__(self, rows: int, cols: int, seed: int = 2) -> None:
        rng = np.random.default_rng(seed)
        self.rows = rows
        self.cols = cols
        self.rank = min(rows - 1, cols)
        self.variances = cols / np.arange(1.0, self.rank + 1)
        self._row_order = rng.permutation(rows)
        self._col_order = rng.permutation(cols)
        self._signs = rng.choice([-1.0, 1.0], self.rank)
        self._mean = rng.standard_normal(cols)
        self._cosines = np.sqrt(2 / rows) * np.cos(np.pi * np.arange(4 * rows) / (2 * rows))

    def block(self, span: slice) -> np.ndarray:
        """Return some rows in float64."""
        odd = 2 * self._row_order[span, None] + 1
        left = self._cosines[odd * np.arange(1, self.rank + 1) % (4 * self.rows)]
        left *= np.sqrt(self.variances * (self.rows - 1)) * self._signs
        spectrum = np.zeros((left.shape[0], self.cols))
        spectrum[:, : self.rank] = left
        return (
            idct(spectrum, norm="ortho", axis=1, overwrite_x=True, workers=2)[:, self._col_order] + self._mean
        )

    def captured(self, components: np.ndarray) -> float:
        """Return the variance that the span of some components holds."""
        basis, _ = np.linalg.qr(np.asarray(components, np.float64).T)
        natural = np.empty_like(basis)
        natural[self._col_order] = basis
        coordinates = dct(natural, norm="ortho", axis=0)[: self.rank]
        return float(self.variances @ (coordinates**2).sum(axis=1))
