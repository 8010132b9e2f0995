"""Classical scaling of a matrix of squared distances: B = -J D2 J / 2, and its eigenvectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.linalg import eigenpairs, fix_signs
from streamdr.errors import DataError, ParameterError
from streamdr.statistics.validation import require_products

_ROUNDING = 1e-12
"""Eigenvalues below this fraction of the largest count as zero."""


class ClassicalSolution(NamedTuple):
    """The eigenvalues of B in descending order, and the first eigenvectors as rows."""

    values: Array
    vectors: Array


def double_centred(squares: Array) -> Array:
    """-J D2 J / 2 of a matrix of squares, in its own memory."""
    means = squares.mean(axis=1)
    squares -= means[:, None]
    squares -= squares.mean(axis=0)
    squares *= -0.5
    return squares


def scaled(squares: Array, n_components: int) -> ClassicalSolution:
    """All eigenvalues of B and the vectors of the largest; `squares` is overwritten."""
    centred = double_centred(squares)
    require_products(centred)
    values, vectors = eigenpairs(centred)
    return ClassicalSolution(values[::-1], fix_signs(vectors[:, ::-1][:, :n_components].T.copy()))


def require_positive(values: Array, n_components: int, rounding: float = 0.0) -> None:
    """Refuse more dimensions than positive eigenvalues; `rounding` is relative to the largest."""
    largest = float(np.abs(values).max(initial=0.0))
    positive = int(np.count_nonzero(values[:n_components] > max(_ROUNDING, rounding) * largest))
    if not positive:
        raise DataError("all points are the same: there is no distance to scale")
    if positive < n_components:
        raise ParameterError(
            "n_components",
            f"only {positive} of the distances' eigenvalues are positive, and {n_components} dimensions were "
            f"requested: set n_components to {positive}",
        )


def projection_of(values: Array, vectors: Array) -> Array:
    """The map from centred squared distances to landmarks to coordinates: -V' L^-1/2 / 2."""
    return -0.5 * vectors / np.sqrt(values)[:, None]
