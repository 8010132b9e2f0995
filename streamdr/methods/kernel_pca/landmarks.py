"""The choice of landmarks for the Nystrom approximation of a kernel matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from streamdr.core.blocks import Array
from streamdr.statistics.kmeans import kmeans

_BATCH = 128
_EXHAUSTED = 1e-13
_INDEFINITE = 1e-8


class Chosen(NamedTuple):
    """The chosen rows of a sample, in order of choice, and the share of the trace that they capture."""

    rows: Array
    captured: float
    definite: bool = True
    """Whether no negative residual was found. If one was, the choice ended early."""


def uniform(n_rows: int, n_landmarks: int, rng: np.random.Generator) -> Array:
    """Rows drawn uniformly."""
    return np.sort(rng.permutation(n_rows)[:n_landmarks])


def clustered(rows: Array, weights: Array, n_landmarks: int, rng: np.random.Generator) -> Array:
    """The centres of k-means clusters, which need not be rows."""
    labels = kmeans(rows, weights, n_landmarks, rng, starts=1)
    counts = np.bincount(labels, weights, minlength=n_landmarks)
    sums = np.zeros((n_landmarks, rows.shape[1]))
    np.add.at(sums, labels, weights[:, None] * rows)
    return sums[counts > 0] / counts[counts > 0, None]


def rpcholesky(
    columns: Callable[[Array], Array],
    diagonal: Array,
    n_landmarks: int,
    rng: np.random.Generator,
    fraction: float = 1.0,
) -> Chosen:
    """Randomly pivoted Cholesky of a kernel matrix: rows are drawn in proportion to the residual diagonal.

    The accelerated form (Epperly, Tropp and Webber 2024) proposes a batch of pivots at once, and accepts each
    with the probability that makes the result distributed as if rows were drawn one by one.
    `columns(rows)` returns the kernel between all rows and some. It ends with `n_landmarks` rows, when these
    capture the fraction of the trace, or when the residual is zero.
    """
    n_rows = len(diagonal)
    left, definite = np.maximum(diagonal, 0.0), bool(diagonal.min() >= 0)
    total = float(left.sum())
    factor = np.zeros((n_rows, n_landmarks))
    chosen: list[int] = []
    while len(chosen) < n_landmarks and left.sum() > max(1.0 - fraction, _EXHAUSTED) * total:
        reached = np.cumsum(left)
        draws = rng.random(_BATCH) * reached[-1]
        proposed = np.minimum(np.searchsorted(reached, draws, side="right"), n_rows - 1)
        so_far = factor[:, : len(chosen)]
        distinct, place = np.unique(proposed, return_inverse=True)
        kernel = columns(distinct)
        residual = kernel[proposed][:, place] - so_far[proposed] @ so_far[proposed].T
        lower, accepted = _rejection_cholesky(residual, rng)
        accepted = accepted[: n_landmarks - len(chosen)]
        pivots = proposed[accepted]
        if not len(pivots):  # their residual is rounding
            left[proposed] = 0.0
            continue
        unexplained = kernel[:, place[accepted]] - so_far @ so_far[pivots].T
        lower = lower[: len(pivots), : len(pivots)]
        new = scipy.linalg.solve_triangular(lower, unexplained.T, lower=True, check_finite=False).T
        kept = len(pivots)
        if fraction < 1.0:
            gains = np.cumsum(np.einsum("ij,ij->j", new, new))
            wanted = float(left.sum()) - (1.0 - fraction) * total
            kept = min(kept, int(np.searchsorted(gains, wanted)) + 1)
        factor[:, len(chosen) : len(chosen) + kept] = new[:, :kept]
        chosen.extend(int(pivot) for pivot in pivots[:kept])
        left -= np.einsum("ij,ij->i", new[:, :kept], new[:, :kept])
        left[chosen] = 0.0
        definite = bool(left.min() > -_INDEFINITE * diagonal.max())
        left = np.maximum(left, 0.0)
        if not definite:
            break
    captured = 1.0 - float(left.sum()) / total if total > 0 else 1.0
    return Chosen(np.array(chosen, np.int64), captured, definite)


def _rejection_cholesky(residual: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """The Cholesky factor of the accepted proposals, and their indices."""
    residual = residual.copy()
    first = np.diag(residual).copy()
    lower = np.zeros_like(residual)
    taken: list[int] = []
    for number, chance in enumerate(rng.random(len(first)) * first):
        pivot = residual[number, number]
        if not (chance < pivot and pivot > _EXHAUSTED * first[number]):
            continue
        column = residual[number:, number] / np.sqrt(pivot)
        lower[number:, len(taken)] = column
        residual[number:, number:] -= np.outer(column, column)
        taken.append(number)
    which = np.array(taken, np.int64)
    return lower[which, : len(which)], which
