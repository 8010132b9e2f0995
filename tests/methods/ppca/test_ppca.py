"""Probabilistic PCA of complete data against eigenvalues, scipy and scikit-learn; and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.decomposition
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_ppca import covariance, low_rank
from scipy.linalg import subspace_angles
from scipy.stats import multivariate_normal

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import in_memory
from streamdr.errors import DataError, ParameterError
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA

SOLVERS = ["covariance", "gram", "krylov"]


def fitted(ppca, x, weights=None):
    """The model of the first route."""
    return in_memory(ppca.routes(MatrixSpec(x.shape[0], x.shape[1], x.dtype))[0].method, x, weights)


def closed_form(x, k):
    """Tipping and Bishop 1999, equations 7 and 8: mean, W (up to signs) and noise."""
    mean = x.mean(axis=0)
    values, vectors = np.linalg.eigh((x - mean).T @ (x - mean) / len(x))
    values, vectors = values[::-1], vectors[:, ::-1]
    noise = values[k:].mean()
    return mean, vectors[:, :k] * np.sqrt(values[:k] - noise), noise


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(200, 12), (12, 40)])
def test_closed_form_is_that_of_the_eigenvalues(solver, shape):
    x = low_rank(shape[0], shape[1], 3)
    mean, loadings, noise = closed_form(x, 3)
    model = fitted(PPCA(3, method="closed_form", solver=solver), x)
    # The Krylov solver is exact as well: it may iterate over all directions.
    np.testing.assert_allclose(model.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(model.noise_variance, noise, rtol=1e-9)
    signs = np.sign((model.loadings * loadings).sum(axis=0))
    np.testing.assert_allclose(model.loadings * signs, loadings, rtol=0, atol=1e-7)
    np.testing.assert_allclose(model.get_covariance(), covariance(loadings, noise), rtol=0, atol=1e-8)
    assert model.converged
    assert model.solver == "closed_form"
    assert model.n_samples == shape[0]
    assert model.n_observed == shape[0] * shape[1]


@pytest.mark.parametrize("method", ["closed_form", "auto", "em", "minibatch"])
def test_log_likelihood_is_that_of_a_normal_distribution(method):
    x = low_rank(300, 8, 2)
    model = fitted(PPCA(2, method=method, tol=1e-12), x)
    density = multivariate_normal(model.mean, model.get_covariance()).logpdf(x)
    np.testing.assert_allclose(model.log_likelihood, density.mean(), rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(x), density, rtol=1e-10)


def test_covariance_and_scores_equal_scikit_learns_up_to_the_degrees_of_freedom():
    """scikit-learn divides by n - 1, so it is given data that is shrunk about the mean to compensate."""
    x = low_rank(150, 9, 3)
    shrunken = x.mean(axis=0) + (x - x.mean(axis=0)) * np.sqrt(149 / 150)
    theirs, ours = sklearn.decomposition.PCA(3, svd_solver="full").fit(shrunken), fitted(PPCA(3), x)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.noise_variance, theirs.noise_variance_, rtol=1e-10)
    np.testing.assert_allclose(ours.explained_variance, theirs.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(ours.explained_variance_ratio, theirs.explained_variance_ratio_, rtol=1e-10)
    np.testing.assert_allclose(ours.score_samples(x), theirs.score_samples(x), rtol=1e-10)
    np.testing.assert_allclose(ours.log_likelihood, theirs.score(x), rtol=1e-12)


def test_precision_is_the_inverse_of_the_covariance():
    model = fitted(PPCA(3), low_rank(150, 9, 3))
    np.testing.assert_allclose(model.get_precision() @ model.get_covariance(), np.eye(9), atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("method", ["em", "minibatch"])
def test_em_converges_to_the_closed_form(method, k):
    x = low_rank(400, 10, 2, noise=0.5)
    exact = fitted(PPCA(k, method="closed_form"), x)
    model = fitted(PPCA(k, method=method, tol=1e-16, max_iter=400), x)
    np.testing.assert_allclose(model.log_likelihood, exact.log_likelihood, rtol=1e-10)
    clear = min(k, 2)  # further directions are determined by the sampling error of the noise only
    assert subspace_angles(model.components[:clear].T, exact.components[:clear].T).max() < 1e-6
    np.testing.assert_allclose(model.explained_variance[:clear], exact.explained_variance[:clear], rtol=1e-6)
    np.testing.assert_allclose(model.components[:clear], exact.components[:clear], atol=1e-5)  # signs, too


def test_latent_variables_are_shrunken_whitened_scores():
    """z = (L - s2)^(1/2) L^-1 U'(x - mean), Tipping and Bishop's posterior mean in principal axes."""
    x = low_rank(100, 6, 2)
    model = fitted(PPCA(2), x)
    scores = (x - x.mean(axis=0)) @ model.components.T
    variance = model.explained_variance
    expected = scores * np.sqrt(variance - model.noise_variance) / variance
    np.testing.assert_allclose(model.transform(x), expected, atol=1e-12)
    mean, spread = model.latent(x)
    np.testing.assert_allclose(mean, expected, atol=1e-12)
    np.testing.assert_allclose(
        spread, np.broadcast_to(np.diag(model.noise_variance / variance), (100, 2, 2)), atol=1e-14
    )


@pytest.mark.parametrize("method", ["closed_form", "em"])
def test_without_noise_latent_variables_are_whitened_scores(method):
    """The remaining shrinkage is that of the smallest noise, 1e-10 of the variance, and of rounding."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 8)) + 4
    model = fitted(PPCA(3, method=method), x)
    white = in_memory(PCA(3, solver="covariance", whiten="pca", ddof=0), x)
    assert model.noise_variance < 1e-9 * model.total_variance
    assert model.log_likelihood == pytest.approx(model.score_samples(x).mean(), rel=1e-9)
    np.testing.assert_allclose(model.transform(x), white.transform(x), atol=1e-6)
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), x, atol=1e-9)


def test_n_components_of_a_list_is_the_best_by_bic():
    x = low_rank(500, 10, 3)
    model = fitted(PPCA([5, 1, 3, 2, 4, 3]), x)
    np.testing.assert_array_equal(model.candidates, [1, 2, 3, 4, 5])
    assert model.n_components == 3
    for k, criterion in zip(model.candidates, model.criteria, strict=True):
        mean, loadings, noise = closed_form(x, int(k))
        nats = multivariate_normal(mean, covariance(loadings, noise)).logpdf(x).sum()
        free = 10 + 10 * k - k * (k - 1) / 2 + 1
        np.testing.assert_allclose(criterion, free * np.log(500) - 2 * nats, rtol=1e-10)
    alone = fitted(PPCA(3), x)
    np.testing.assert_allclose(model.components, alone.components, atol=1e-10)
    assert model.noise_variance == pytest.approx(alone.noise_variance, rel=1e-10)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32])
def test_integers_have_no_missing_values_and_use_the_closed_form(dtype):
    x = np.random.default_rng(0).integers(0, 200, size=(100, 6)).astype(dtype)
    ppca = PPCA(2)
    assert ppca.routes(MatrixSpec(100, 6, x.dtype))[0].passes == 1, "EM is not planned"
    _, loadings, noise = closed_form(x.astype(np.float64), 2)
    model = fitted(ppca, x)
    assert model.solver == "closed_form"
    np.testing.assert_allclose(model.get_covariance(), covariance(loadings, noise), rtol=1e-5, atol=0.1)
    by_em = fitted(PPCA(2, method="em", tol=1e-12), x)
    np.testing.assert_allclose(by_em.log_likelihood, model.log_likelihood, rtol=1e-5)


@given(shift=st.floats(-1e8, 1e8), factor=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
@settings(max_examples=25)
@pytest.mark.parametrize("method", ["closed_form", "em"])
def test_shift_moves_the_mean_and_scale_the_rest(method, shift, factor, seed):
    x = low_rank(60, 5, 2, seed=seed, offset=0.0)
    ppca = PPCA(2, method=method, max_iter=3)
    plain, moved, scaled = (fitted(ppca, y) for y in (x, x + shift, x * factor))
    rounding = 1e-9 + 1e-14 * abs(shift)  # of data that was stored at that distance
    expected = plain.get_covariance()
    np.testing.assert_allclose(moved.get_covariance(), expected, rtol=0, atol=10 * rounding)
    np.testing.assert_allclose(moved.mean - shift, plain.mean, rtol=0, atol=rounding)
    assert moved.log_likelihood == pytest.approx(plain.log_likelihood, rel=100 * rounding)
    np.testing.assert_allclose(scaled.get_covariance() / factor**2, expected, rtol=1e-7, atol=1e-9)
    per_row = plain.log_likelihood - 5 * np.log(factor)
    assert scaled.log_likelihood == pytest.approx(per_row, rel=1e-8, abs=1e-8)


def test_rows_drawn_from_a_model_have_its_covariance():
    model = fitted(PPCA(2), low_rank(100, 5, 2))
    rows = model.sample(200_000, np.random.default_rng(0))
    spread = np.sqrt(5 * (model.total_variance**2) / 200_000)  # several standard errors of an entry
    np.testing.assert_allclose(np.cov(rows.T), model.get_covariance(), atol=spread)
    np.testing.assert_allclose(
        rows.mean(axis=0), model.mean, atol=5 * np.sqrt(model.total_variance / 200_000)
    )


def test_summary_says_what_a_report_needs():
    model = fitted(PPCA(2), low_rank(100, 5, 2))
    summary = model.summary()
    assert summary["solver"] == "closed_form"
    assert summary["missing"] == 0.0
    assert summary["notes"] == []
    ratio = np.linalg.eigvalsh(np.cov(low_rank(100, 5, 2).T))[::-1]
    np.testing.assert_allclose(summary["explained_variance_ratio"], (ratio / ratio.sum())[:2], rtol=1e-10)


BAD: dict[str, list[Any]] = {
    "n_components": [0, -1, 1.5, 2.0, "most", True, None, [], [2, 0], [1.5], [True], [[1, 2]], {1: 2}],
    "method": ["gibbs", None],
    "batch_rows": [0, -5],
    "tol": [-1e-9, float("nan")],
    "max_iter": [0],
    "ridge": [-1.0],
    "holdout": [-0.1, 1.0, 2.0],
    "solver": ["svd"],
}


@pytest.mark.parametrize(("parameter", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_impossible_parameters_are_refused_by_name(parameter, value):
    with pytest.raises(ParameterError) as refused:
        PPCA(**{parameter: value}).check()
    assert refused.value.parameter == parameter


@pytest.mark.parametrize("parameter", ["holdout", "ridge"])
def test_parameters_that_the_closed_form_does_not_support_are_refused_with_advice(parameter):
    given: dict[str, Any] = {parameter: 0.5}
    with pytest.raises(ParameterError, match="set method to em") as refused:
        PPCA(2, method="closed_form", **given).check()
    assert refused.value.parameter == parameter
    PPCA(2, **given).check()


@pytest.mark.parametrize("method", ["closed_form", "auto", "em", "minibatch"])
@pytest.mark.parametrize(
    ("shape", "k", "words"),
    [
        ((10, 4), 4, "leave no direction for noise in data of n_features = 4: set it to 3 or fewer"),
        ((10, 4), [1, 9], "9 components leave no direction for noise"),
        ((3, 9), 5, "5 components need as many rows, and the data has 3"),
    ],
)
def test_more_components_than_the_data_can_have_are_refused(method, shape, k, words):
    with pytest.raises(ParameterError, match=words) as refused:
        PPCA(k, method=method).routes(MatrixSpec(shape[0], shape[1], np.dtype("f8")))
    assert refused.value.parameter == "n_components"


@pytest.mark.parametrize("method", ["closed_form", "auto", "em", "minibatch"])
def test_data_that_cannot_be_fitted_is_refused(method):
    ppca = PPCA(1, method=method)
    with pytest.raises(DataError, match="n_samples = 1"):
        fitted(ppca, np.ones((1, 4)))
    for value in (1.0, 0.1, -1e8 / 3):
        with pytest.raises(DataError, match="every column is constant"):
            fitted(ppca, np.full((1001, 4), value))
    infinite = low_rank(50, 4, 1)
    infinite[7, 2] = np.inf
    with pytest.raises(DataError, match="infinite"):
        fitted(ppca, infinite)
    for huge in (1e200, 1e160):
        with pytest.raises(DataError, match=r"overflow.*rescale"):
            fitted(ppca, low_rank(50, 4, 1) * huge)


def test_a_missing_value_is_an_error_for_the_closed_form_only():
    x = low_rank(50, 4, 1)
    x[7, 2] = np.nan
    with pytest.raises(ParameterError, match="needs complete data; set it to auto or em") as refused:
        fitted(PPCA(1, method="closed_form"), x)
    assert refused.value.parameter == "method"
    assert fitted(PPCA(1), x).solver == "em"


@pytest.mark.parametrize("method", ["auto", "em", "minibatch"])
def test_data_without_any_observed_value_is_an_error(method):
    with pytest.raises(DataError, match="every value is missing: there is nothing to fit"):
        fitted(PPCA(1, method=method), np.full((30, 4), np.nan))
    with pytest.raises(DataError, match="every value is missing: there is nothing to fit"):
        fitted(PPCA(1, method=method), np.full((30, 2100), np.nan))


@pytest.mark.parametrize("method", ["em", "minibatch"])
def test_wide_data_that_cannot_be_fitted_is_refused(method):
    """With more than 2048 features, EM starts from a sample of rows."""
    ppca = PPCA(1, method=method)
    with pytest.raises(DataError, match="every column is constant"):
        fitted(ppca, np.full((40, 2100), 0.1))
    with pytest.raises(DataError, match=r"overflow.*rescale"):
        fitted(ppca, low_rank(40, 2100, 1) * 1e200)


@pytest.mark.parametrize("method", ["auto", "em", "minibatch"])
def test_more_components_than_observed_features_are_refused(method):
    x = low_rank(60, 6, 2)
    x[:, 2:] = np.nan
    with pytest.raises(ParameterError, match="only 2 features have any observed value") as refused:
        fitted(PPCA(2, method=method), x)
    assert refused.value.parameter == "n_components"
    assert fitted(PPCA(1, method=method), x).n_components == 1
