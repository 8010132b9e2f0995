"""The variance in feature space that a kernel PCA explains: in float64, by exact distances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
from scipy.linalg import eigh, solve
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist

from benchmarks.contender import Solution
from benchmarks.harness import Judge

ROWS = 4000
TRACE, EXPLAINED, ERROR = "trace captured", "variance explained", "variance error"


def rbf(x: np.ndarray, y: np.ndarray, gamma: float) -> np.ndarray:
    """Return the kernel of all pairs of rows."""
    return np.exp(-gamma * cdist(x, y, "sqeuclidean"))


def sampled(store: Path) -> np.ndarray:
    """Return some rows of every eighth of a store."""
    array = zarr.open_array(store, mode="r")
    starts = np.linspace(0, array.shape[0] - ROWS // 8, 8).astype(int)
    return np.concatenate([np.asarray(array[start : start + ROWS // 8], np.float64) for start in starts])


def captured_trace(rows: np.ndarray, landmarks: np.ndarray, gamma: float) -> float:
    """Return the fraction of the sum of k(x, x) over some rows that is in the span of the landmarks."""
    lengths, axes = eigh(rbf(landmarks, landmarks, gamma))
    kept = lengths > 1e-10 * lengths[-1]
    onto = rbf(rows, landmarks, gamma) @ (axes[:, kept] / np.sqrt(lengths[kept]))
    return float((onto**2).sum() / len(rows))


def quality_of(store: Path, gamma: float) -> Judge:
    """Return the judge that projects a sample of the rows onto components, whatever their scale.

    The total variance is that of the exact kernel matrix of the sample, without landmarks or approximation.
    """
    rows = sampled(store)
    total = 1 - float(rbf(rows, rows, gamma).mean())

    def judge(found: Solution) -> dict[str, float | str]:
        landmarks = found.landmarks.astype(np.float64)
        weights = found.components.T.astype(np.float64)
        cross = rbf(rows, landmarks, gamma)
        scores = (cross - cross.mean(axis=0)) @ weights
        inner = weights.T @ rbf(landmarks, landmarks, gamma) @ weights
        explained = float((scores.T * solve(inner, scores.T, assume_a="sym")).sum() / len(rows))
        return {
            TRACE: f"{captured_trace(rows, landmarks, gamma):.5f}",
            EXPLAINED: f"{explained / total:.5f}",
        }

    return judge


def variance_error_of(store: Path, k: int, gamma: float) -> Judge:
    """Return the judge that says how far off the worst variance is, of all rows and in float64."""
    rows = np.asarray(zarr.open_array(store, mode="r")[:], np.float64)
    kernel = rbf(rows, rows, gamma)
    means = kernel.mean(axis=0)
    kernel += means.mean() - means - means[:, None]
    begin = np.random.default_rng(0).standard_normal(len(rows))
    truth = np.sort(eigsh(kernel, k, return_eigenvectors=False, v0=begin))[::-1] / len(rows)
    return lambda found: {ERROR: float(np.abs(found.variances / truth - 1).max())}
