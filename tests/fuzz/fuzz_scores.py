"""Scores of the fitted rows: they must have the variances that the model states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

DOUBLE, SINGLE, SINGLE_KERNEL = 1e-6, 1e-5, 1e-2
"""The largest error of a product of scores, relative to the largest variance. Kernel PCA in single precision
takes sums of squares that cancel: it switches to double where that costs more than a few thousandths."""
EPS = float(np.finfo(np.float64).eps)


class ScoreProducts(NamedTuple):
    """The products of scores, computed and stated by the model, in units of the largest variance."""

    found: np.ndarray
    stated: np.ndarray
    rounding: np.ndarray | float = 0.0
    """The additional error that the condition of the problem allows, for each pair."""


Scores = Callable[[Any, np.ndarray, np.ndarray, Any], ScoreProducts | None]


def far(data: Any, variance: float) -> float:
    """The error of a variance where the mean is far from zero, and rounded relative to its size."""
    return 16 * EPS * float(np.abs(data.rows.astype(np.float64)).max()) * float(np.sqrt(variance))


def pca(model: Any, scores: np.ndarray, shares: np.ndarray, data: Any) -> ScoreProducts:
    """Variances over n - ddof. Whitened scores have unit variance; their scaling is undone."""
    variance = model.explained_variance
    if model.whiten == "zca":
        scores = scores @ model.components.T
    if model.whiten is not None:
        scores = scores * np.sqrt(variance)
    weight = model.n_samples - model.ddof
    return ScoreProducts((scores.T * shares) @ scores / weight, np.diag(variance), far(data, variance[0]))


def ppca(model: Any, scores: np.ndarray, shares: np.ndarray, data: Any) -> ScoreProducts | None:
    """For the closed form: 1 - noise / variance of each latent variable, scaled by its variance."""
    if model.solver != "closed_form":
        return None
    variance = model.explained_variance
    scaled = scores * np.sqrt(variance)
    found, stated = (scaled.T * shares) @ scaled / shares.sum(), np.diag(variance - model.noise_variance)
    return ScoreProducts(found, stated, far(data, variance[0]))


def kernel(model: Any, scores: np.ndarray, shares: np.ndarray, data: Any) -> ScoreProducts | None:
    """Eigenvalues over n. The axes of a sparse model are not eigenvectors: their scores are correlated."""
    variance = model.explained_variance
    found, largest = (scores.T * shares) @ scores / model.n_samples, float(variance.max())
    if np.sqrt(largest) < np.finfo(np.float32).tiny / EPS:
        return None  # too small for scores in float32
    if model.approximation == "sparse":
        found = np.diag(np.diag(found))
    # The rounding of a kernel is relative to its size, and that of an rbf to its exponents.
    rows = data.rows.astype(np.float64) - model.origin
    exponent = model.gamma * float(np.sum(rows**2, axis=1).max()) if model.kernel == "rbf" else 0.0
    size = float(np.abs(model.kernel_means).max()) * (1 + exponent)
    lost = 8 * EPS * size * np.abs(model.coefficients).sum(axis=0)
    rounding = 2 * np.sqrt(largest) * np.add.outer(lost, lost)
    if model.approximation == "random_features":  # squares of a sum of one cancel
        rounding += 64 * EPS * (1 + float(np.abs(rows @ model.frequencies).max()))
    return ScoreProducts(found, np.diag(variance), rounding)


def lda(model: Any, scores: np.ndarray, shares: np.ndarray, data: Any) -> ScoreProducts | None:
    """Unit variance within classes, as far as the condition of the correlations within classes allows."""
    if model.shrinkage is not None:
        return None
    found = np.zeros((model.n_components, model.n_components))
    for label in model.classes:
        mine = data.classes == label
        centred = scores[mine] - shares[mine] @ scores[mine] / shares[mine].sum()
        found += (centred.T * shares[mine]) @ centred / shares.sum()
    deviations = np.sqrt(np.diag(model.covariance))
    condition = np.sum((deviations[:, None] * model.scalings) ** 2, axis=0)
    eps = EPS if data.rows.dtype.itemsize == 8 else float(np.finfo(np.float32).eps)
    # Where one row outweighs its class, the scatter of the others is a difference of far larger squares.
    outweighed = float(shares.max() / shares[shares > 0].min())
    rounding = 64 * eps * outweighed * np.sqrt(np.outer(condition, condition))
    return ScoreProducts(found, np.eye(model.n_components), rounding)


def scaling(model: Any, scores: np.ndarray, shares: np.ndarray, data: Any) -> ScoreProducts:
    """Eigenvalues of all rows, or of the landmarks."""
    if model.landmark_rows is not None:
        scores = scores[model.landmark_rows.astype(int)]
    rounding = len(scores) * far(data, model.eigenvalues[0] / len(scores))
    return ScoreProducts(scores.T @ scores, np.diag(model.eigenvalues), rounding)


SCORES: dict[str, Scores] = {
    "pca": pca,
    "ppca": ppca,
    "kernel_pca": kernel,
    "sparse_kernel_pca": kernel,
    "lda": lda,
    "classical_mds": scaling,
    "landmark_mds": scaling,
}


def check_scores(name: str, model: Any, data: Any, weights: Any, mapped: np.ndarray) -> None:
    """Raise if the products of the scores of all rows are not those that the model states."""
    if name not in SCORES or not np.isfinite(mapped).all():
        return
    shares = np.ones(len(mapped)) if weights is None else np.asarray(weights)
    products = SCORES[name](model, mapped.astype(np.float64), shares, data)
    if products is None:
        return
    single = SINGLE_KERNEL if "kernel" in name and not model.double else SINGLE
    part = DOUBLE if data.rows.dtype.itemsize == 8 else single
    excess = np.abs(products.found - products.stated) - products.rounding
    if not excess.max() <= part * np.abs(products.stated).max():
        raise AssertionError(f"scores have {np.diag(products.found)[:4]} for {np.diag(products.stated)[:4]}")
