"""Pre-images of points in feature space: by a fixed-point iteration, and by kernel ridge regression."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from streamdr.core.blocks import Array
from streamdr.core.linalg import eigenpairs
from streamdr.errors import DataError
from streamdr.methods.kernel_pca.features import KernelColumns
from streamdr.methods.kernel_pca.kernels import Kernel, ShiftedRows, kernel_matrix

_ITERATIONS = 200
_TOLERANCE = 1e-10


def fixed_point(columns: KernelColumns, parts: Array, start: Array) -> Array:
    """The rows z that maximise sum_i parts_i k(z, x_i) for an rbf: pre-images of sum_i parts_i phi(x_i).

    Mika and others (1999): z <- sum_i parts_i k(z, x_i) x_i / sum_i parts_i k(z, x_i). The denominator is
    the objective, so that each row keeps its best point, even if the iteration diverges.
    """
    landmarks = columns.landmarks
    best, reached = start.copy(), np.full(len(start), -np.inf)
    now, active = start.copy(), np.arange(len(start))
    for _ in range(_ITERATIONS):
        pulls = np.empty((len(now), len(landmarks)))
        columns.fill(now, [pulls])
        pulls *= parts[active]
        height = pulls.sum(axis=1)
        better = height > reached[active]
        best[active[better]], reached[active[better]] = now[better], height[better]
        going = height > 0  # elsewhere the iteration is not defined
        after = now.copy()
        after[going] = pulls[going] @ landmarks / height[going, None]
        step = np.linalg.norm(after - now, axis=1)
        scale = np.linalg.norm(after - columns.origin, axis=1)
        going &= better & (step > _TOLERANCE * np.maximum(scale, np.finfo(np.float64).tiny))
        active, now = active[going], after[going]
        if not len(active):
            break
    return best


def _solved(matrix: Array, right: Array) -> Array:
    """The solution of a symmetric system; the shortest one where it is singular to working precision.

    It is singular where the ridge is lost in rounding: duplicate rows have the same scores.
    """
    solved: Array
    for kind in ("pos", "sym"):  # a kernel that is not positive semidefinite
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
                solved = scipy.linalg.solve(matrix, right, assume_a=kind, check_finite=False)
            return solved
        except (np.linalg.LinAlgError, scipy.linalg.LinAlgWarning):
            continue
    values, vectors = eigenpairs(matrix)
    size = np.abs(values)
    kept = size > len(size) * np.finfo(np.float64).eps * size.max()
    solved = vectors[:, kept] @ ((vectors[:, kept].T @ right) / values[kept, None])
    return solved


@dataclass(frozen=True, eq=False)
class Ridge:
    """Kernel ridge regression from scores to rows."""

    kernel: Kernel
    scores: Array
    dual: Array

    @classmethod
    def fitted(cls, kernel: Kernel, scores: Array, rows: Array, alpha: float) -> Ridge:
        """Fit the regression to pairs of scores and rows (Bakir, Weston and Schoelkopf 2004)."""
        matrix = cls._between(kernel, scores, scores)
        matrix.flat[:: len(matrix) + 1] += alpha
        if not np.isfinite(matrix).all():
            raise DataError(
                "values of the kernel between scores overflow, and the inverse transform cannot be fitted: "
                "rescale the data, choose a smaller gamma or degree, or leave fit_inverse_transform out"
            )
        return cls(kernel, scores, _solved(matrix, rows))

    def predict(self, scores: Array) -> Array:
        """The rows that scores map back to."""
        rows: Array = self._between(self.kernel, scores, self.scores) @ self.dual
        return rows

    @staticmethod
    def _between(kernel: Kernel, left: Array, right: Array) -> Array:
        origin = np.zeros(left.shape[1])  # scores are centred
        return kernel_matrix(kernel, ShiftedRows(left, origin), ShiftedRows(right, origin))
