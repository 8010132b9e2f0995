"""Kernel methods on degenerate data: low rank, repeated and constant rows, no positive eigenvalue."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

import streamdr
from streamdr.errors import DataError


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def low_rank(seed, dtype="f8"):
    rng = np.random.default_rng(seed)
    n, d, rank = int(rng.integers(5, 60)), int(rng.integers(2, 12)), int(rng.integers(1, 4))
    rows = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    if seed % 3 == 1:
        rows = rows[rng.integers(0, 4, n)]
    return rows.astype(dtype)


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "laplacian", "cosine"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_sparse_components_are_at_most_the_rank_of_the_kernel(kernel, dtype):
    for seed in range(25):
        rows = low_rank(seed, dtype)
        wanted = min(20, len(rows))
        parameters: dict[str, Any] = {"degree": 2, "coef0": 0.0} if kernel == "poly" else {}
        try:
            fitted = streamdr.SparseKernelPCA(wanted, kernel=kernel, **parameters).fit(rows)
        except DataError:  # one row, many times
            continue
        gamma = {} if kernel in ("linear", "cosine") else {"gamma": 1 / rows.shape[1]}
        about = rows.astype("f8") - (rows.astype("f8").mean(axis=0) if kernel == "linear" else 0)
        matrix = pairwise_kernels(about, metric=kernel, **gamma, **parameters)
        assert len(fitted.eigenvalues_) <= np.linalg.matrix_rank(matrix, tol=1e-14 * np.trace(matrix)), seed
        assert fitted.eigenvalues_.sum() <= fitted.n_samples_ * fitted.total_variance_ * (1 + 1e-5)
        assert np.isfinite(fitted.transform(rows)).all()


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid", "laplacian", "cosine"])
@pytest.mark.parametrize("alpha", [1.0, 1e-8, 1e-300])
def test_the_inverse_transform_is_fitted_to_repeated_rows(kernel, alpha):
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(6, 3))[rng.integers(0, 6, 40)]
    fitted = streamdr.KernelPCA(3, kernel=kernel, gamma=0.2, fit_inverse_transform=True, alpha=alpha)
    back = fitted.fit(rows).inverse_transform(fitted.transform(rows))
    assert np.isfinite(back).all()
    if kernel in ("rbf", "laplacian") and alpha < 1:
        np.testing.assert_allclose(back, rows, atol=1e-3)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("value", [0.0, 3.3, 1e6])
def test_random_features_of_constant_rows_are_refused(kernel, dtype, value):
    rows = np.full((50, 4), value, dtype)
    method = streamdr.KernelPCA(2, kernel=kernel, approximation="random_features", n_landmarks=30)
    with pytest.raises(DataError, match="every row is the same to the kernel"):
        method.fit(rows)


def negative(a, b):
    return -np.exp(-((a - b) ** 2).sum())


@pytest.mark.parametrize("way", ["exact", "nystrom"])
def test_a_kernel_without_positive_eigenvalues_and_equal_rows_are_different_errors(way):
    rows = np.random.default_rng(1).normal(size=(30, 3))
    method = streamdr.KernelPCA(2, kernel=negative, approximation=way, n_landmarks=10)
    with pytest.raises(DataError, match="no positive"):
        method.fit(rows)
    with pytest.raises(DataError, match="every row is the same"):
        streamdr.KernelPCA(2, kernel="sigmoid", approximation=way, n_landmarks=10).fit(np.ones((30, 3)))


def test_the_variance_of_a_kernel_that_is_not_definite_is_that_of_its_positive_part():
    rows = np.random.default_rng(1).normal(size=(40, 3))
    fitted = streamdr.KernelPCA(kernel="sigmoid", gamma=2.0, coef0=-1.0).fit(rows)
    assert fitted.negative_eigenvalues_ > 0
    assert fitted.explained_variance_.sum() <= fitted.total_variance_ * (1 + 1e-12)
    assert fitted.explained_variance_ratio_.sum() <= 1 + 1e-12


def test_sparse_components_report_a_kernel_that_is_not_definite():
    rows = np.random.default_rng(1).normal(size=(40, 3))
    fitted = streamdr.SparseKernelPCA(2, kernel="sigmoid", gamma=2.0, coef0=-1.0).fit(rows)
    assert fitted.negative_eigenvalues_ > 0
    assert streamdr.SparseKernelPCA(2, gamma=0.1).fit(rows).negative_eigenvalues_ == 0


@pytest.mark.parametrize("weighted", [True, False])
def test_rows_far_apart_are_similar_to_themselves_only(weighted):
    # Distances of rows to themselves are rounded, too, and would be large for a narrow kernel.
    rng = np.random.default_rng(2)
    rows, weights = 1e12 * rng.normal(size=(30, 4)), rng.uniform(0.5, 2, 30) if weighted else np.ones(30)
    fitted = streamdr.KernelPCA(kernel="rbf", gamma=0.2).fit(rows, sample_weight=weights)
    images = np.sqrt(weights)[:, None] * (np.eye(30) - weights / weights.sum())  # minus their mean
    values = np.linalg.svd(images, compute_uv=False) ** 2
    assert len(fitted.eigenvalues_) == 29
    np.testing.assert_allclose(fitted.eigenvalues_, values[:29], rtol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "cosine"])
def test_rows_that_a_kernel_hardly_separates_explain_no_more_than_the_total_variance(kernel):
    rng = np.random.default_rng(4)
    for n_rows in (9, 30, 60):
        rows = 1.0 + 1e-6 * rng.normal(size=(n_rows, 10))
        fitted = streamdr.KernelPCA(kernel=kernel, approximation="exact").fit(rows)
        assert fitted.explained_variance_.sum() <= fitted.total_variance_ * (1 + 1e-12)
