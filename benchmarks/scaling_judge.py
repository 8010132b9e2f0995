"""How well coordinates preserve distances: one function for all contenders, in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
from scipy.linalg import eigh
from scipy.spatial.distance import cdist, pdist

from benchmarks.contender import Solution
from benchmarks.harness import Judge

STRESS, KRUSKAL, FORMULA = "stress", "stress-1", "difference from the formula"
JUDGED = 2000
ALL_PAIRS = 10_000
"""With more rows, the stress is that of sampled pairs."""
PAIRS = 4_000_000


def judged_rows(n_rows: int) -> np.ndarray:
    """Return the numbers of some rows, over all of a store."""
    return np.unique(np.linspace(0, n_rows - 1, JUDGED).astype(np.int64))


def plain_axes(landmarks: np.ndarray, k: int, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return eigenvalues, the projection and the mean squares of landmark MDS, by its formulas."""
    squares = cdist(landmarks, landmarks, metric) ** 2
    means = squares.mean(axis=0)
    inner = -(squares - means - means[:, None] + means.mean()) / 2
    m = len(landmarks)
    values, vectors = eigh(inner, subset_by_index=[m - k, m - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    return values, -vectors.T / (2 * np.sqrt(values)[:, None]), means


def placed_of(store: Path, metric: str) -> Judge:
    """Return the judge of landmark MDS: its stress, and whether coordinates are those of its landmarks.

    Differences are in units of the first coordinate's standard deviation, whatever the signs of the axes.
    """
    array = zarr.open_array(store, mode="r")
    rows = np.asarray(array.oindex[judged_rows(array.shape[0])], np.float64)
    wanted = pdist(rows, metric)

    def judge(found: Solution) -> dict[str, float | str]:
        points = found.embedding.astype(np.float64)
        landmarks = found.landmarks.astype(np.float64)
        _, projection, means = plain_axes(landmarks, points.shape[1], metric)
        plain = (cdist(rows, landmarks, metric) ** 2 - means) @ projection.T
        plain *= np.sign((plain * points).sum(axis=0))
        reached = pdist(points)
        return {
            KRUSKAL: f"{np.sqrt(((wanted - reached) ** 2).sum() / (reached**2).sum()):.4f}",
            FORMULA: float(np.abs(points - plain).max() / plain[:, 0].std()),
        }

    return judge


def stress_of(store: Path) -> Judge:
    """Return the judge of metric MDS: sum (a-b)^2 / sum a^2, over all pairs, or over some of many rows."""
    rows = np.asarray(zarr.open_array(store, mode="r")[:], np.float64)
    if len(rows) <= ALL_PAIRS:
        wanted = pdist(rows)
    else:
        rng = np.random.default_rng(10)
        left, right = rng.integers(len(rows), size=(2, PAIRS))
        wanted = np.linalg.norm(rows[left] - rows[right], axis=1)

    def judge(found: Solution) -> dict[str, float | str]:
        points = found.embedding.astype(np.float64)
        if len(rows) <= ALL_PAIRS:
            reached = pdist(points)
        else:
            reached = np.linalg.norm(points[left] - points[right], axis=1)
        return {STRESS: f"{((wanted - reached) ** 2).sum() / (wanted**2).sum():.6f}"}

    return judge


def kruskal_of(store: Path) -> Judge:
    """Return the judge of nonmetric MDS: sqrt(sum (d - dhat)^2 / sum d^2), dhat by isotonic regression."""
    from sklearn.isotonic import IsotonicRegression

    unlike = pdist(np.asarray(zarr.open_array(store, mode="r")[:], np.float64))

    def judge(found: Solution) -> dict[str, float | str]:
        reached = pdist(found.embedding.astype(np.float64))
        hats = IsotonicRegression().fit_transform(unlike, reached)
        return {KRUSKAL: f"{np.sqrt(((reached - hats) ** 2).sum() / (reached**2).sum()):.6f}"}

    return judge
