"""Random data, and random parameters for every method of the registry: case number n is always the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz_steps import STEPS, Rng, choice

DTYPES = ("f8", "f8", "f4", "f4", "f2", "i8", "i2", "u1", "?")


@dataclass
class Data:
    """A matrix with its weights and labels, and its chunks."""

    rows: np.ndarray
    weights: np.ndarray | None
    classes: np.ndarray
    numbers: np.ndarray
    chunks: tuple[int, int]
    words: list[str]

    @property
    def has_missing(self) -> bool:
        return self.rows.dtype.kind == "f" and bool(np.isnan(self.rows).any())


def random_data(rng: Rng, *, allow_nan: bool, small: bool = False) -> Data:
    """Rows of random shape, type and defects."""
    words: list[str] = []
    n = int(rng.integers(1, 12)) if rng.uniform() < 0.15 else int(rng.integers(5, 40 if small else 120))
    d = int(rng.integers(1, 4)) if rng.uniform() < 0.15 else int(rng.integers(2, 20 if small else 60))
    rank = int(rng.integers(1, min(n, d) + 1)) if rng.uniform() < 0.4 else min(n, d)
    spectrum = choice(rng, np.ones(rank), 0.7 ** np.arange(rank), 10.0 ** -np.arange(rank))
    rows = (rng.normal(size=(n, rank)) * spectrum) @ rng.normal(size=(rank, d))
    words.append(f"{n} x {d} of rank {rank}")
    if rng.uniform() < 0.3:
        rows = rows * choice(rng, 1e-12, 1e-6, 1e-3, 1e3, 1e6, 1e12)
        words.append("scaled")
    if rng.uniform() < 0.3:
        rows = rows + choice(rng, 1.0, -1e3, 1e5, 1e8) * (1 if rng.uniform() < 0.5 else rng.normal(size=d))
        words.append("offset")
    if rng.uniform() < 0.2:
        rows = rows[rng.integers(0, max(1, n // 4), n)]
        words.append("repeated rows")
    if rng.uniform() < 0.2:
        rows[:, rng.uniform(size=d) < 0.4] = choice(rng, 0.0, 1.0, 0.1, 1e6)
        words.append("constant columns")
    if rng.uniform() < 0.04:
        rows[:] = rows[0]
        words.append("constant")
    rows = as_type(rows, np.dtype(choice(rng, *DTYPES)), words)
    if allow_nan and rows.dtype.kind == "f" and rng.uniform() < 0.6:
        missing = rng.uniform(size=rows.shape) < choice(rng, 0.02, 0.3, 0.8)
        if rng.uniform() < 0.2:
            missing[:, 0] = True
        rows = np.where(missing, rows.dtype.type(np.nan), rows)
        words.append("missing values")
    classes = rng.integers(0, int(rng.integers(1, 5)), n)
    numbers = rng.normal(size=n) if rng.uniform() < 0.9 else np.zeros(n)
    chunks = (int(rng.integers(1, n + 1)), int(rng.integers(1, d + 1)))
    return Data(rows, random_weights(rng, n, words), classes, numbers, chunks, words)


def as_type(rows: np.ndarray, dtype: np.dtype[Any], words: list[str]) -> np.ndarray:
    """The rows in another type, scaled to its range."""
    words.append(dtype.name)
    if dtype.kind == "b":
        return rows > np.median(rows)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = (0, 255) if dtype.kind == "u" else (-1000, 1000)
        size = float(np.abs(rows).max()) or 1.0
        return np.clip(np.round(rows / size * high), max(low, limits.min), high).astype(dtype)
    if dtype.itemsize == 2:
        size = float(np.abs(rows).max()) or 1.0
        return (rows / size * 100).astype(dtype)
    return rows.astype(dtype)


def random_weights(rng: Rng, n: int, words: list[str]) -> np.ndarray | None:
    kind = choice(rng, None, None, None, "some zero", "most zero", "large", "tiny", "whole", "uneven")
    if kind is None:
        return None
    words.append(f"weights {kind}")
    if kind == "some zero":
        return np.where(rng.uniform(size=n) < 0.4, 0.0, rng.uniform(0.5, 2, n))
    if kind == "most zero":
        return np.where(rng.uniform(size=n) < 0.95, 0.0, 1.0)
    if kind == "whole":
        return rng.integers(0, 4, n).astype(float)
    if kind == "uneven":
        return 10.0 ** rng.uniform(-8, 8, n)
    return rng.uniform(0.5, 2, n) * (1e12 if kind == "large" else 1e-12)


def kernel_parameters(rng: Rng) -> dict[str, Any]:
    kernel = choice(rng, "linear", "poly", "rbf", "sigmoid", "laplacian", "cosine")
    return {
        "kernel": kernel,
        "gamma": choice(rng, None, None, 0.01, 1.0, *(["median"] if kernel in ("rbf", "laplacian") else [])),
        "degree": choice(rng, 2, 3),
        "coef0": choice(rng, 1.0, 0.0, -1.0),
    }


def components(rng: Rng, data: Data, most: int = 12) -> int:
    return int(rng.integers(1, max(1, min(*data.rows.shape, most)) + 1))


def pca(rng: Rng, data: Data) -> dict[str, Any]:
    return {
        "n_components": choice(rng, components(rng, data, 60), components(rng, data), 0.9, None),
        "solver": choice(rng, "auto", "covariance", "gram", "krylov"),
        "scale": bool(rng.uniform() < 0.3),
        "whiten": choice(rng, None, None, None, "pca", "zca"),
        "center": bool(rng.uniform() < 0.9),
    }


def ppca(rng: Rng, data: Data) -> dict[str, Any]:
    method = choice(rng, "auto", "em", "minibatch", "closed_form")
    holds_out = method != "closed_form" and rng.uniform() < 0.3
    return {
        "n_components": components(rng, data, 5),
        "method": method,
        "holdout": choice(rng, 0.1, 0.5, 0.9) if holds_out else 0.0,
        "max_iter": int(rng.integers(1, 6)),
    }


def mixture(rng: Rng, data: Data) -> dict[str, Any]:
    return {
        "n_components": components(rng, data, 3),
        "n_mixtures": int(rng.integers(1, 4)),
        "max_iter": int(rng.integers(1, 5)),
    }


def kernel_pca(rng: Rng, data: Data) -> dict[str, Any]:
    way = choice(rng, "auto", "exact", "nystrom", "random_features")
    found = kernel_parameters(rng)
    if way == "random_features":
        found["kernel"] = choice(rng, "rbf", "laplacian")
    return found | {
        "n_components": choice(rng, None, components(rng, data)),
        "approximation": way,
        "n_landmarks": choice(rng, components(rng, data, 40), None if way == "exact" else 12),
        "landmarks": choice(rng, "rpcholesky", "uniform", "kmeans"),
        "fit_inverse_transform": way != "random_features" and bool(rng.uniform() < 0.4),
        "alpha": choice(rng, 1.0, 1e-6),
    }


def sparse_kernel_pca(rng: Rng, data: Data) -> dict[str, Any]:
    return kernel_parameters(rng) | {"n_components": components(rng, data, 20)}


def lda(rng: Rng, data: Data) -> dict[str, Any]:
    return {"shrinkage": choice(rng, None, None, 0.1, 1.0, "auto")}


def selection(rng: Rng, data: Data) -> dict[str, Any]:
    return {"k": choice(rng, None, int(rng.integers(1, data.rows.shape[1] + 1)), "cv"), "n_folds": 3}


def forward(rng: Rng, data: Data) -> dict[str, Any]:
    return {"k": choice(rng, int(rng.integers(1, min(data.rows.shape[1], 6) + 1)), "cv"), "n_folds": 3}


def classical(rng: Rng, data: Data) -> dict[str, Any]:
    return {
        "n_components": components(rng, data, 4),
        "metric": choice(rng, "euclidean", "cityblock", "cosine"),
        "solver": choice(rng, "auto", "krylov"),
    }


def landmark(rng: Rng, data: Data) -> dict[str, Any]:
    return {
        "n_components": components(rng, data, 3),
        "metric": choice(rng, "euclidean", "cityblock", "cosine"),
        "n_landmarks": int(rng.integers(2, 20)),
    }


def stress(rng: Rng, data: Data) -> dict[str, Any]:
    return {
        "n_components": components(rng, data, 3),
        "metric": choice(rng, "euclidean", "cityblock", "cosine"),
        "max_iter": int(rng.integers(1, 6)),
        "n_init": 1,
    }


def som(rng: Rng, data: Data) -> dict[str, Any]:
    topology, height = choice(rng, "rectangular", "hexagonal"), int(rng.integers(1, 7))
    even = topology == "rectangular" or height % 2 == 0
    return {
        "height": height,
        "width": int(rng.integers(1, 7)),
        "topology": topology,
        "toroidal": even and bool(rng.uniform() < 0.5),
        "neighborhood": choice(rng, "gaussian", "bubble"),
        "n_epochs": int(rng.integers(1, 5)),
        "sigma": choice(rng, None, 0.5, 2.0),
        "sigma_end": choice(rng, 0.5, 0.05),
        "decay": choice(rng, "exponential", "linear"),
        "init": choice(rng, "pca", "random"),
        "precision": choice(rng, "mixed", "double"),
        "random_state": int(rng.integers(3)),
    }


PARAMETERS: dict[str, Callable[[Rng, Data], dict[str, Any]]] = {
    "pca": pca,
    "ppca": ppca,
    "ppca_mixture": mixture,
    "kernel_pca": kernel_pca,
    "sparse_kernel_pca": sparse_kernel_pca,
    "lda": lda,
    "select_mutual_info": selection,
    "select_f_score": selection,
    "select_correlation": selection,
    "select_forward": forward,
    "classical_mds": classical,
    "landmark_mds": landmark,
    "metric_mds": stress,
    "nonmetric_mds": stress,
    "som": som,
    **STEPS,
}
SMALL = ("metric_mds", "nonmetric_mds", "ppca_mixture", "ppca")
