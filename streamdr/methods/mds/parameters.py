"""Parameters and helpers that all MDS methods share: metric, sampled pairs, Kruskal's stress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.linalg import orthonormal
from streamdr.errors import DataError, InputError
from streamdr.methods.mds.distances import METRICS
from streamdr.statistics.validation import require

if TYPE_CHECKING:  # a function can be given in Python, and nowhere else
    Metric = Literal["euclidean", "cityblock", "cosine", "precomputed"] | Callable[[Any, Any], Any]
else:
    Metric = Literal["euclidean", "cityblock", "cosine", "precomputed"]

N_PAIRS = 5_000
"""The number of sampled pairs, for Shepard diagrams and their stress."""


def check_common(n_components: int, metric: Any) -> None:
    """Refuse impossible values of the shared parameters."""
    whole = isinstance(n_components, (int, np.integer)) and not isinstance(n_components, bool)
    valid = whole and n_components >= 1
    require(valid, "n_components", f"{n_components!r} is not a whole number of at least 1")
    known = (*METRICS, "precomputed")
    valid = callable(metric) or metric in known
    names = ", ".join(repr(name) for name in known)
    require(valid, "metric", f"{metric!r} is not one of {names}, nor a function")


def require_enough(data: MatrixSpec, n_components: int, metric: Any) -> None:
    """Refuse data with too few rows, or a precomputed matrix that is not square."""
    if metric == "precomputed" and data.n_rows != data.n_cols:
        raise InputError(
            "metric",
            f"a distance matrix must be square, and this is {data.n_rows} x {data.n_cols}: set metric to "
            "'euclidean' if its rows are points",
        )
    if data.n_rows < 2:
        raise DataError(
            f"scaling needs at least 2 points to have a distance, not one sample: n_samples = {data.n_rows}"
        )
    require(
        n_components < data.n_rows,
        "n_components",
        f"{data.n_rows} points have at most {data.n_rows - 1} dimensions: set it to that or less",
    )


def some_pairs(n_points: int, seed: int, count: int = N_PAIRS) -> Array:
    """Sorted pairs of points as two columns of indices: all pairs, or `count` random ones."""
    if n_points * (n_points - 1) // 2 <= count:
        return np.stack(np.triu_indices(n_points, 1), axis=1)
    rng = np.random.default_rng([seed, 77])
    left = np.sort(rng.integers(0, n_points, count))
    return np.stack([left, (left + 1 + rng.integers(0, n_points - 1, count)) % n_points], axis=1)


def lengths(left: Array, right: Array) -> Array:
    """The Euclidean distance of each row of `left` to the same row of `right`."""
    difference = left - right
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", difference, difference)))


def kruskal(targets: Array, fitted: Array) -> float:
    """Kruskal's stress-1, sqrt(sum (d - a)^2 / sum d^2), of pairs whose target distance a is observed."""
    observed = ~np.isnan(targets)
    size = float(np.sum(fitted[observed] ** 2))
    return float(np.sqrt(np.sum((targets - fitted)[observed] ** 2) / size)) if size else 0.0


def random_basis(n_points: int, width: int, seed: int) -> Array:
    """Random orthonormal vectors that sum to zero."""
    ones = np.full((n_points, 1), n_points**-0.5)
    return orthonormal(np.random.default_rng(seed).standard_normal((n_points, width)), against=ones)
