"""A plain reference for multidimensional scaling: whole matrices in float64, and loops over pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
POWERS = {"normalized": 0, "relative": 2, "sammon": 1}
"""The weight of a pair at distance a is a to the power of minus this."""


def distance(x: Array, y: Array, metric: str) -> float:
    """The distance of two rows."""
    if metric == "euclidean":
        return float(np.sqrt(np.sum((x - y) ** 2)))
    if metric == "cityblock":
        return float(np.sum(np.abs(x - y)))
    assert metric == "cosine"
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    if lengths == 0:
        return 0.0 if np.linalg.norm(x) == np.linalg.norm(y) else 1.0
    return 1.0 - float(x @ y / lengths)


def distances(x: Array, y: Array | None = None, metric: str = "euclidean") -> Array:
    """The distances of all rows to all rows."""
    x = np.asarray(x, dtype=np.float64)
    others = x if y is None else np.asarray(y, dtype=np.float64)
    found = np.array([[distance(one, other, metric) for other in others] for one in x])
    if y is None:
        np.fill_diagonal(found, 0.0)  # 1 - cos is zero up to rounding
    return np.maximum(found, 0.0)


def double_centred(wanted: Array) -> Array:
    """-J D2 J / 2, with J = I - 11'/n."""
    n = len(wanted)
    centre = np.eye(n) - np.ones((n, n)) / n
    found: Array = -0.5 * centre @ wanted**2 @ centre
    return found


def descending(symmetric: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors (columns), the largest first, the largest entry of each positive."""
    values, vectors = np.linalg.eigh((symmetric + symmetric.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(values))]
    return values, vectors * np.sign(largest)


def classical(wanted: Array, k: int) -> tuple[Array, Array]:
    """All eigenvalues of B, and coordinates in k dimensions."""
    values, vectors = descending(double_centred(wanted))
    return values, vectors[:, :k] * np.sqrt(values[:k])


def landmark(among: Array, between: Array, k: int) -> tuple[Array, Array]:
    """Eigenvalues of the landmarks' B, and coordinates of points at distances `between` to them."""
    values, vectors = descending(double_centred(among))
    means = np.mean(among**2, axis=0)
    inverse = vectors[:, :k].T / np.sqrt(values[:k])[:, None]
    placed = np.array([-0.5 * inverse @ (row**2 - means) for row in between])
    return values, placed


def pairs(n: int) -> list[tuple[int, int]]:
    """All pairs, each once."""
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


def of_pairs(matrix: Array) -> Array:
    """The upper triangle in the order of `pairs`."""
    return np.array([matrix[i, j] for i, j in pairs(len(matrix))])


def weight_of(kind: str, a: float, w: float) -> float:
    """The weight of a pair: zero if its distance is missing, or zero and a divisor."""
    if np.isnan(a) or (a == 0 and POWERS[kind]):
        return 0.0
    return w / a ** POWERS[kind]


def stress(kind: str, wanted: Array, points: Array, weights: Array | None = None) -> float:
    """One of the three stresses, by its definition."""
    total = size = 0.0
    for i, j in pairs(len(wanted)):
        a, b = wanted[i, j], float(np.sqrt(np.sum((points[i] - points[j]) ** 2)))
        w = 1.0 if weights is None else float(weights[i, j])
        if np.isnan(a) or (a == 0 and kind != "normalized"):
            continue
        if kind == "normalized":
            total, size = total + w * (a - b) ** 2, size + w * a**2
        elif kind == "relative":
            total, size = total + w * ((a - b) / a) ** 2, 1.0
        else:
            total, size = total + w * (a - b) ** 2 / a, size + w * a
    return total / size


def gradient(kind: str, wanted: Array, points: Array, weights: Array | None = None) -> Array:
    """The gradient of a stress: the derivative of (a - b)^2 is -2 (a - b) times that of b."""
    found, size = np.zeros(points.shape), 0.0
    for i, j in pairs(len(wanted)):
        a, b = wanted[i, j], float(np.sqrt(np.sum((points[i] - points[j]) ** 2)))
        w = weight_of(kind, a, 1.0 if weights is None else float(weights[i, j]))
        if w == 0:
            continue
        size += w * a**2
        along = (points[i] - points[j]) / b if b > 0 else 0.0
        found[i] -= 2 * w * (a - b) * along
        found[j] += 2 * w * (a - b) * along
    return found / (1.0 if kind == "relative" else size)


def slope(function: Callable[[Array], float], at: Array, step: float = 1e-6) -> Array:
    """Central differences in each coordinate."""
    found = np.zeros(at.shape)
    for place in np.ndindex(*at.shape):
        high, low = at.copy(), at.copy()
        high[place] += step
        low[place] -= step
        found[place] = (function(high) - function(low)) / (2 * step)
    return found


def smacof(
    kind: str, wanted: Array, start: Array, weights: Array | None = None, steps: int = 300, tol: float = 0.0
) -> tuple[Array, list[float]]:
    """Iterated Guttman transforms, V+ B(X) X: the points, and the stress before and after each step."""
    n, now = len(wanted), np.array(start, dtype=np.float64)
    w = np.zeros((n, n))
    for i, j in pairs(n):
        w[i, j] = w[j, i] = weight_of(kind, wanted[i, j], 1.0 if weights is None else float(weights[i, j]))
    targets = np.where(w > 0, wanted, 0.0)
    inverse = np.linalg.pinv(np.diag(w.sum(axis=1)) - w)
    history = [stress(kind, wanted, now, weights)]
    for _ in range(steps):
        apart = distances(now)
        ratio = np.where(apart > 0, w * targets / np.where(apart > 0, apart, 1.0), 0.0)
        now = inverse @ (np.diag(ratio.sum(axis=1)) - ratio) @ now
        history.append(stress(kind, wanted, now, weights))
        if history[-2] - history[-1] <= tol * history[-1]:
            break
    return now, history


def pava(values: Array, weights: Array | None = None) -> Array:
    """The closest non-decreasing sequence, by pooling adjacent violators."""
    weights = np.ones(len(values)) if weights is None else weights
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for value, weight in zip(values, weights, strict=True):
        pools.append((float(value), float(weight), 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, v, m), (high, w, n) = pools[-2:]
            both = v + w
            pools[-2:] = [((v * low + w * high) / both if both else (low + high) / 2, both, m + n)]
    return np.concatenate([np.full(count, mean) for mean, _, count in pools])


def disparities(
    dissimilarities: Array, reached: Array, ties: str = "secondary", weights: Array | None = None
) -> Array:
    """The disparities: the isotonic regression of distances on dissimilarities.

    Pairs of equal dissimilarity may have different disparities (primary), or not (secondary).
    """
    weights = np.ones(len(dissimilarities)) if weights is None else weights
    found = np.empty(len(dissimilarities))
    if ties == "primary":
        order = np.lexsort((reached, dissimilarities))
        found[order] = pava(reached[order], weights[order])
        return found
    levels, members = np.unique(dissimilarities, return_inverse=True)
    sums = np.zeros(len(levels))
    sizes = np.zeros(len(levels))
    for level, distance_, weight in zip(members, reached, weights, strict=True):
        sums[level] += weight * distance_
        sizes[level] += weight
    return pava(sums / sizes, sizes)[members]


def stress_one(reached: Array, wanted: Array, weights: Array | None = None) -> float:
    """Kruskal's stress-1: sqrt(sum (d - dhat)^2 / sum d^2), d the distances in the configuration."""
    weights = np.ones(len(reached)) if weights is None else weights
    return float(np.sqrt(np.sum(weights * (reached - wanted) ** 2) / np.sum(weights * reached**2)))


def nonmetric_stress(
    dissimilarities: Array, points: Array, ties: str = "secondary", weights: Array | None = None
) -> float:
    """Kruskal's stress-1 of a configuration, with its best disparities; NaN is missing."""
    wanted, reached = of_pairs(dissimilarities), of_pairs(distances(points))
    observed = ~np.isnan(wanted)
    w = np.ones(len(wanted)) if weights is None else of_pairs(weights)
    wanted, reached, w = wanted[observed], reached[observed], w[observed]
    return stress_one(reached, disparities(wanted, reached, ties, w), w)


def aligned(points: Array, to: Array) -> Array:
    """The points after the translation, rotation and reflection that bring them closest to others."""
    middle, observed = points.mean(axis=0), to.mean(axis=0)
    left, _, right = np.linalg.svd((points - middle).T @ (to - observed))
    moved: Array = (points - middle) @ left @ right + observed
    return moved


def shortest_paths(links: Array) -> Array:
    """Distances along a graph (Floyd and Warshall): a metric that is not Euclidean."""
    found = np.array(links, dtype=np.float64)
    for middle in range(len(found)):
        found = np.minimum(found, found[:, middle, None] + found[middle])
    return found
