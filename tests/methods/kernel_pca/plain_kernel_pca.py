"""Kernel PCA in its simplest form: whole kernel matrices in float64, one formula at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ZERO = 1e-12
"""Eigenvalues below this share of the largest are rounding errors, and not components."""


def kernel_matrix(
    x: Array,
    y: Array | None = None,
    kernel: str = "rbf",
    gamma: float | None = None,
    degree: float = 3,
    coef0: float = 1.0,
) -> Array:
    """k(x_i, y_j) for all i and j, by scikit-learn's formulas, from differences of rows."""
    x = np.asarray(x, dtype=np.float64)
    y = x if y is None else np.asarray(y, dtype=np.float64)
    gamma = 1.0 / x.shape[1] if gamma is None else gamma
    found = np.empty((len(x), len(y)))
    for i, row in enumerate(x):
        inner = np.sum(row * y, axis=1)
        if kernel == "linear":
            found[i] = inner
        elif kernel == "poly":
            found[i] = (gamma * inner + coef0) ** degree
        elif kernel == "sigmoid":
            found[i] = np.tanh(gamma * inner + coef0)
        elif kernel == "rbf":
            found[i] = np.exp(-gamma * np.sum((row - y) ** 2, axis=1))
        elif kernel == "laplacian":
            found[i] = np.exp(-gamma * np.sum(np.abs(row - y), axis=1))
        elif kernel == "cosine":
            norms = np.linalg.norm(row) * np.linalg.norm(y, axis=1)
            found[i] = np.where(norms > 0, inner / np.where(norms > 0, norms, 1.0), 0.0)
        else:
            raise ValueError(kernel)
    return found


def descending(symmetric: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors, the largest first."""
    values, vectors = np.linalg.eigh((symmetric + symmetric.T) / 2)
    return values[::-1], vectors[:, ::-1]


def centred(kernel: Array) -> Array:
    """K - 1K - K1 + 1K1."""
    return kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()


def pointed(scores: Array, by: Array) -> Array:
    """The scores, with the sign of each column that makes the largest entry of `by` positive."""
    largest = by[np.argmax(np.abs(by), axis=0), np.arange(by.shape[1])]
    return scores * np.sign(largest)


def exact(kernel: Array, k: int | None = None) -> tuple[Array, Array]:
    """Eigenvalues above zero of the centred matrix, and coefficients a with (n lambda) a.a = 1."""
    values, vectors = descending(centred(kernel))
    keep = np.flatnonzero(values > ZERO * values[0])[:k]
    return values[keep], vectors[:, keep] / np.sqrt(values[keep])


def exact_scores(kernel: Array, new: Array, k: int | None = None) -> Array:
    """Scores of rows whose kernels with the training rows are `new` (new x n)."""
    _, coefficients = exact(kernel, k)
    coefficients = pointed(coefficients, centred(kernel) @ coefficients)
    between = new - kernel.mean(axis=0) - new.mean(axis=1)[:, None] + kernel.mean()
    scores: Array = between @ coefficients
    return scores


def inverse_root(symmetric: Array, tolerance: float = 1e-12) -> Array:
    """The square root of the (pseudo-)inverse."""
    values, vectors = descending(symmetric)
    keep = values > tolerance * values[0]
    root: Array = (vectors[:, keep] / np.sqrt(values[keep])) @ vectors[:, keep].T
    return root


class Nystrom:
    """Kernel PCA in the span of the landmarks' feature vectors, over all rows."""

    def __init__(self, between: Array, among: Array, weights: Array | None = None) -> None:
        """`between`: kernels of all rows with the landmarks; `among`: of the landmarks."""
        self.root = inverse_root(among)
        self.features = between @ self.root
        weights = np.ones(len(between)) if weights is None else weights
        self.mean = np.average(self.features, axis=0, weights=weights)
        middle = self.features - self.mean
        values, vectors = descending(middle.T @ (weights[:, None] * middle))
        keep = values > ZERO * values[0]
        self.eigenvalues, self.axes = values[keep], vectors[:, keep]
        at_landmarks = (among @ self.root - self.mean) @ self.axes
        self.axes = pointed(self.axes, at_landmarks)

    def captured(self, diagonal: Array) -> float:
        """The share of sum k(x, x) that lies in the span."""
        return float(np.sum(self.features**2) / np.sum(diagonal))

    def scores(self, between: Array, k: int | None = None) -> Array:
        """Scores of rows by their kernels with the landmarks."""
        found: Array = (between @ self.root - self.mean) @ self.axes[:, :k]
        return found


def held_out_errors(features: Array, residual: Array, folds: Array, k: int) -> Array:
    """The share of held-out rows' variance about the training mean that k components do not explain.

    `residual` is the part of k(x, x) outside of the span of the features.
    """
    errors = []
    for fold in np.unique(folds):
        train, test = features[folds != fold], features[folds == fold]
        mean = train.mean(axis=0)
        _, axes = descending((train - mean).T @ (train - mean))
        about = test - mean
        total = np.sum(about**2) + np.sum(residual[folds == fold])
        explained = np.sum((about @ axes[:, :k]) ** 2)
        errors.append(1.0 - explained / total)
    return np.array(errors)


def sparse(kernel: Array, k: int, candidates: Array | None = None) -> tuple[list[int], Array]:
    """A greedy choice of rows whose feature vectors explain most, and the centred scores of all rows."""
    left = np.array(kernel, dtype=np.float64)
    candidates = np.arange(len(kernel)) if candidates is None else candidates
    picked: list[int] = []
    columns = []
    floor = 1e-10 * np.diag(kernel).max()
    for _ in range(k):
        gains = {i: left[:, i].var() / left[i, i] for i in candidates if left[i, i] > floor}
        if not gains:
            break
        best = max(gains, key=lambda i: gains[i])
        column = left[:, best] / np.sqrt(left[best, best])
        picked.append(int(best))
        columns.append(column - column.mean())
        left -= np.outer(left[:, best], left[best]) / left[best, best]
    return picked, np.column_stack(columns)


def rp_cholesky(kernel: Array, m: int, rng: np.random.Generator) -> list[int]:
    """Randomly pivoted Cholesky, one pivot at a time (Chen, Epperly, Tropp and Webber 2023)."""
    left = np.array(kernel, dtype=np.float64)
    first = np.trace(left)
    picked: list[int] = []
    for _ in range(m):
        diagonal = np.maximum(np.diag(left), 0.0)
        diagonal[picked] = 0.0
        if diagonal.sum() <= 1e-12 * first:
            break
        pivot = int(rng.choice(len(kernel), p=diagonal / diagonal.sum()))
        picked.append(pivot)
        left -= np.outer(left[:, pivot], left[pivot]) / left[pivot, pivot]
    return picked


def captured_by(kernel: Array, picked: list[int] | Array) -> float:
    """The share of the trace that these rows' feature vectors span."""
    chosen = np.asarray(picked)
    features = kernel[:, chosen] @ inverse_root(kernel[np.ix_(chosen, chosen)])
    return float(np.sum(features**2) / np.trace(kernel))


def fixed_point(weights: Array, points: Array, gamma: float, start: Array, steps: int = 1000) -> Array:
    """Mika's pre-image of sum_j weights_j phi(points_j) under an RBF kernel, from `start` on."""
    now = np.array(start, dtype=np.float64)
    for _ in range(steps):
        pull = weights * np.exp(-gamma * np.sum((points - now) ** 2, axis=1))
        following = pull @ points / pull.sum()
        if np.linalg.norm(following - now) <= 1e-14 * np.linalg.norm(now):
            return following
        now = following
    return now


def ridge(scores: Array, rows: Array, new: Array, alpha: float, **kernel: Any) -> Array:
    """The rows of new scores, by kernel ridge regression on pairs of scores and rows."""
    system = kernel_matrix(scores, **kernel) + alpha * np.eye(len(scores))
    mapped: Array = kernel_matrix(new, scores, **kernel) @ np.linalg.solve(system, rows)
    return mapped
