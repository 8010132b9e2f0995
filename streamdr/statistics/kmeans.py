"""k-means of rows in memory, with weights."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Array

_STARTS = 5
_ITERATIONS = 50


def kmeans(
    rows: Array, weights: Array, n_clusters: int, rng: np.random.Generator, *, starts: int = _STARTS
) -> Array:
    """The cluster of each row: the best of several starts, by the sum of squared distances."""
    best, least = np.zeros(len(rows), np.int64), np.inf
    for _ in range(starts):
        labels, distance = _lloyd(rows, weights, _kmeans_plus_plus(rows, weights, n_clusters, rng))
        if distance < least:
            best, least = labels, distance
    return best


def _kmeans_plus_plus(rows: Array, weights: Array, n_clusters: int, rng: np.random.Generator) -> Array:
    """Initial centres, drawn with probabilities proportional to squared distances from those before."""
    chosen = [_draw_index(weights, rng)]
    nearest = _distances(rows, rows[chosen])[:, 0]
    while len(chosen) < n_clusters:
        chosen.append(_draw_index(weights * nearest, rng))
        nearest = np.minimum(nearest, _distances(rows, rows[chosen[-1:]])[:, 0])
    return rows[chosen].copy()


def _draw_index(chances: Array, rng: np.random.Generator) -> int:
    """A random index, with probabilities proportional to `chances`."""
    reached = np.cumsum(chances)
    return min(int(np.searchsorted(reached, rng.random() * reached[-1])), len(chances) - 1)


def _lloyd(rows: Array, weights: Array, centres: Array) -> tuple[Array, float]:
    """The clusters by Lloyd's iterations, and the sum of squared distances."""
    labels = np.full(len(rows), -1)
    for _ in range(_ITERATIONS):
        distances = _distances(rows, centres)
        nearest = np.argmin(distances, axis=1)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        members = np.zeros((len(centres), len(rows)))
        members[labels, np.arange(len(rows))] = weights
        counts = members.sum(axis=1)
        some = counts > 0
        centres[some] = (members @ rows)[some] / counts[some, None]
    return labels, float(weights @ np.min(_distances(rows, centres), axis=1))


def _distances(rows: Array, centres: Array) -> Array:
    """The squared distance of each row from each centre."""
    shift = rows.mean(axis=0)
    a, b = rows - shift, centres - shift
    squares = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b) - 2 * (a @ b.T)
    distances: Array = np.maximum(squares, 0.0)
    return distances
