"""Reference results of plain numpy, scipy and scikit-learn for small data, in float64 and in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.feature_selection import f_classif, f_regression
from sklearn.metrics.pairwise import pairwise_kernels

Reference = Callable[[Any, Any, Any, Any, Any], None]
EPS = float(np.finfo(np.float64).eps)


def _precision(data: Any) -> float:
    """The rounding error of eigenvalues, relative to the largest."""
    return 1e-9 if data.rows.dtype.itemsize == 8 else 1e-4


def _weighted(data: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = data.rows.astype(np.float64)
    return rows, np.ones(len(rows)) if weights is None else weights


def pca(method: Any, model: Any, data: Any, weights: Any, labels: Any) -> None:
    """Eigenvalues of the weighted covariance; those of block Krylov are within their residuals."""
    rows, shares = _weighted(data, weights)
    shares = np.where(shares > 0, shares, 0.0)
    centred = rows
    if method.center:
        centred = centred - shares @ centred / shares.sum()
        centred -= shares @ centred / shares.sum()
    if method.scale:
        deviation = np.sqrt(shares @ centred**2 / (shares.sum() - 1))
        scaled = model.scale != 1
        if not np.allclose(model.scale[scaled], deviation[scaled], rtol=1e-4):
            raise AssertionError("columns are scaled by wrong deviations")
        centred = np.where(model.scale == 1, centred, centred / np.where(deviation > 0, deviation, 1.0))
    values = np.linalg.svd(np.sqrt(shares)[:, None] * centred, compute_uv=False) ** 2 / (shares.sum() - 1)
    found = np.asarray(model.explained_variance)
    rounding = _precision(data) * values[0]
    # Values far from zero are rounded when they are stored, which is not an error of the method.
    near = 1e-6 * float(np.abs(rows).max()) ** 2 * (0 if data.rows.dtype.itemsize < 8 else 1e-9)
    allowed = rounding + near
    if model.solver == "krylov":
        residuals = np.asarray(model.residuals)
        for value, residual in zip(found, residuals, strict=True):
            nearest = float(np.abs(values - value).min(initial=value))
            if nearest > residual * values[0] + 10 * allowed:
                raise AssertionError(
                    f"{value:.9g} is {nearest:.3g} from any eigenvalue, residual {residual:.3g}"
                )
        return
    if len(found) > len(values):
        raise AssertionError(f"{len(found)} components of at most {len(values)}")
    if np.abs(found - values[: len(found)]).max() > allowed:
        raise AssertionError(f"variances {found[:4]} for {values[:4]}")


def kernel_pca(method: Any, model: Any, data: Any, weights: Any, labels: Any) -> None:
    """Eigenvalues of the centred kernel matrix of rows of positive weight; weights are repetitions."""
    if model.approximation != "exact" or data.rows.dtype.itemsize < 8:
        return
    rows, shares = _weighted(data, weights)
    rows, shares = rows[shares > 0], shares[shares > 0]
    if float(np.abs(rows).max()) > 1e4 * float(rows.std()):
        return  # scikit-learn takes distances as differences of squares
    about = rows - rows.mean(axis=0) if model.kernel in ("linear", "rbf", "laplacian") else rows
    own = {"poly": ("gamma", "degree", "coef0"), "sigmoid": ("gamma", "coef0")}
    names = own.get(model.kernel, ("gamma",) if model.kernel in ("rbf", "laplacian") else ())
    kernel = pairwise_kernels(about, metric=model.kernel, **{name: getattr(model, name) for name in names})
    means = shares @ kernel / shares.sum()
    kernel = kernel - means - means[:, None] + shares @ means / shares.sum()
    roots = np.sqrt(shares)
    values = np.linalg.eigvalsh(roots[:, None] * kernel * roots)[::-1]
    found = model.eigenvalues
    size = max(values[0], 1e-7 * float(np.abs(means).max()) * shares.sum())
    if np.abs(found - values[: len(found)]).max() > 1e-6 * size:
        raise AssertionError(f"eigenvalues {found[:4]} for {values[:4]}")


def f_score(method: Any, model: Any, data: Any, weights: Any, labels: Any) -> None:
    """The statistics of scikit-learn, for columns that are neither constant nor determined by the labels."""
    rows = data.rows.astype(np.float64)
    if weights is not None or data.rows.dtype.itemsize < 8:
        return
    spread = rows.std(axis=0) > 1e-6 * np.abs(rows).max()
    rows = rows - rows.mean(axis=0)  # scikit-learn takes scatter as a difference of squares
    with np.errstate(all="ignore"):
        expected = f_classif(rows, labels) if model.task == "classification" else f_regression(rows, labels)
    sound = spread & np.isfinite(expected[0]) & (expected[0] < 1e6)
    if not np.allclose(model.scores[sound], expected[0][sound], rtol=1e-5, atol=1e-7):
        raise AssertionError(f"F {model.scores[sound][:3]} for {expected[0][sound][:3]}")


def classical_mds(method: Any, model: Any, data: Any, weights: Any, labels: Any) -> None:
    """Eigenvalues of the doubly centred squared distances."""
    if data.rows.dtype.itemsize < 8 or method.metric == "cosine":
        return
    rows = data.rows.astype(np.float64)
    squares = cdist(rows, rows, method.metric) ** 2
    squares -= squares.mean(axis=0)
    squares -= squares.mean(axis=1)[:, None]
    values = np.linalg.eigvalsh(-(squares + squares.T) / 4)[::-1]
    found = np.asarray(model.eigenvalues)[: model.n_outputs]
    loose = 1e-3 if model.solver == "krylov" else 1e-6
    if np.abs(found - values[: len(found)]).max() > loose * values[0]:
        raise AssertionError(f"eigenvalues {found} for {values[: len(found)]}")


def som(method: Any, model: Any, data: Any, weights: Any, labels: Any) -> None:
    """The nearest unit of every row, its distance, and the weight of the rows of each unit."""
    rows, shares = _weighted(data, weights)
    distances = cdist(rows, model.codebook)
    units = model.predict(data.rows)
    own = distances[np.arange(len(rows)), units]
    eps = np.finfo(np.float64 if model.double else model.transform(data.rows).dtype).eps
    # Distances are computed from squares about the origin, with rounding relative to the largest.
    about = np.vstack([rows, model.codebook]) - model.origin
    size = float(np.linalg.norm(about, axis=1).max()) * (1 + rows.shape[1]) ** 0.5
    far = 4 * EPS * float(np.abs(rows).max())
    if (own**2 > distances.min(axis=1) ** 2 + 16 * eps * size**2 + far**2).any():
        raise AssertionError("a row has a unit that is not the nearest")
    if not np.allclose(np.bincount(units, shares, minlength=model.n_units), model.hits, rtol=1e-9):
        raise AssertionError("the hits are not the weights of the rows of each unit")
    expected = float(shares @ own / shares.sum())
    if abs(model.quantization_error - expected) > 16 * eps * size + far:
        raise AssertionError(f"quantisation error {model.quantization_error} for {expected}")


REFERENCES: dict[str, Reference] = {
    "pca": pca,
    "kernel_pca": kernel_pca,
    "select_f_score": f_score,
    "classical_mds": classical_mds,
    "som": som,
}
