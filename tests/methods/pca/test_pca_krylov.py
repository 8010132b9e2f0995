"""The Krylov solver on spectra that fall into the rounding of products, against the SVD in float64."""

import warnings

import numpy as np
import pytest
from narrowing import present

import streamdr

FAMILIES = ("low rank", "0.8^i", "0.5^i", "1/i")
DTYPES = ("float32", "uint8", "int8", "float64")
ROUNDING = {"float64": 1e-12}
SINGLE = 2e-6
"""The largest error of eigenvalues, relative to the largest one: bytes are multiplied in float32, too."""


def matrix(family, dtype, seed):
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    n, d = (int(size) for size in rng.integers(40, 600, 2))
    if family == "low rank":
        rank = int(rng.integers(1, 30))
        rows = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))
    else:
        index = np.arange(min(n, d))
        spectrum = {"0.8^i": 0.8**index, "0.5^i": 0.5**index, "1/i": 1 / (1 + index)}[family]
        left = np.linalg.qr(rng.standard_normal((n, len(index))))[0]
        right = np.linalg.qr(rng.standard_normal((d, len(index))))[0]
        rows = np.sqrt(n) * (left * spectrum ** rng.choice([0.5, 1.0])) @ right.T
    if rng.random() < 0.5:
        rows = rows + rng.standard_normal(d) * rows.std() * 10.0 ** rng.uniform(-2, 3)
    if np.dtype(dtype).kind in "iu":
        rows = np.round(255 * (rows - rows.min()) / np.ptp(rows)) + np.iinfo(dtype).min
    return rows.astype(dtype), int(rng.integers(1, 30))


def check(rows, k, **parameters):
    """Check the guarantees of the solver, which hold for any matrix."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pca = streamdr.PCA(k, solver="krylov", **parameters).fit(rows)
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    spectrum = np.linalg.svd(centred, compute_uv=False) ** 2 / (len(rows) - 1)
    exact = np.append(spectrum, np.zeros(k))[:k]
    slack = ROUNDING.get(str(rows.dtype), SINGLE) * spectrum[0]
    found, components, residuals = pca.explained_variance_, pca.components_, present(pca.residuals_)

    assert found.sum() <= pca.total_variance_ * (1 + 1e-12)
    assert (found <= exact + slack).all()
    assert pca.total_variance_ == pytest.approx(spectrum.sum(), rel=1e-6, abs=slack)
    np.testing.assert_allclose(components @ components.T, np.eye(k), atol=1e-10)
    images = centred.T @ (centred @ components.T) / (len(rows) - 1)
    assert (np.linalg.norm(images - components.T * found, axis=0) <= residuals + slack).all()
    assert (np.abs(found[:, None] - np.append(spectrum, 0.0)).min(axis=1) <= residuals + slack).all()
    # The missing variance of directions is bounded by their residuals.
    assert exact.sum() - found.sum() <= np.minimum(residuals, exact).sum() + k * slack + 1e-3 * exact.sum()
    beyond = exact <= (8e-8 if str(rows.dtype) != "float64" else 1e-15) * spectrum[0]
    assert pca.rank_ <= np.count_nonzero(~beyond)
    return pca


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_residuals_ranks_and_totals_hold(family, dtype):
    for seed in range(3):
        check(*matrix(family, dtype, seed), random_state=seed)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_residuals_ranks_and_totals_hold_of_300_matrices(family, dtype):
    for seed in range(300):
        check(*matrix(family, dtype, seed), random_state=seed)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_double_precision_products_leave_double_precision_errors(family, dtype):
    rows, k = matrix(family, dtype, 7)
    double = streamdr.PCA(k, solver="krylov", precision="double").fit(rows)
    same = streamdr.PCA(k, solver="krylov").fit(rows.astype(np.float64))
    np.testing.assert_allclose(
        double.explained_variance_, same.explained_variance_, atol=1e-12 * same.explained_variance_[0]
    )


def test_the_automatic_choice_of_low_rank_data_in_single_precision():
    rng = np.random.default_rng(0)
    axes = rng.standard_normal((30, 3000))
    rows = (rng.standard_normal((3000, 30)) @ axes).astype(np.float32)
    pca = streamdr.PCA(5).fit(rows)
    assert pca.solver_ == "krylov"
    within = rows.astype(np.float64) @ np.linalg.qr(axes.T)[0]
    exact = np.linalg.svd(within - within.mean(axis=0), compute_uv=False)[:5] ** 2 / 2999
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=1e-5)


@pytest.mark.parametrize("k", [3, 12, 20])
def test_bytes_in_few_columns_explain_all_variance(k):
    rows = np.zeros((500, 100), np.uint8)
    rows[:, :12] = np.random.default_rng(0).integers(0, 255, (500, 12))
    pca = check(rows, k)
    exact = np.sort(np.linalg.eigvalsh(np.cov(rows[:, :12].T.astype(float))))[::-1][:k]
    np.testing.assert_allclose(pca.explained_variance_[:12], exact, rtol=1e-5)
    assert pca.rank_ == min(k, 12)
    with pytest.raises(ValueError, match="rank 12"):
        streamdr.PCA(20, solver="krylov", whiten=True).fit(rows)


def test_passes_end_when_only_rounding_is_left():
    # The first pass finds all of rank 5; the second shows that only rounding is left.
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal((400, 5)) @ rng.standard_normal((5, 300))).astype(np.float32)
    few = streamdr.PCA(8, solver="krylov", max_passes=2).fit(rows)
    many = streamdr.PCA(8, solver="krylov", max_passes=9).fit(rows)
    np.testing.assert_array_equal(few.explained_variance_, many.explained_variance_)
    assert few.rank_ == many.rank_ == 5
