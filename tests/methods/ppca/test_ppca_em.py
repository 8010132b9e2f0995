"""EM for data with missing values against plain loops, normal densities and conditional distributions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from narrowing import checked
from plain_ppca import (
    MASKS,
    conditional,
    covariance,
    em,
    em_step,
    log_likelihoods,
    low_rank,
    posterior,
    with_missing,
)
from scipy.linalg import subspace_angles
from scipy.optimize import approx_fprime

from streamdr.core.blocks import Block, MatrixSpec, Span
from streamdr.core.method import in_memory
from streamdr.errors import DataError, ParameterError
from streamdr.methods.ppca import PPCA
from streamdr.methods.ppca.em import divergence, maximise, pairwise_start
from streamdr.methods.ppca.holdout import Holdout
from streamdr.methods.ppca.latent import Latent
from streamdr.methods.ppca.model import PPCAModel
from streamdr.methods.ppca.pairwise import Pairwise
from streamdr.methods.ppca.posterior import Factors
from streamdr.methods.ppca.small_matrices import matrices_per_slab


def fitted(x, k=2, weights=None, **parameters):
    return in_memory(PPCA(k, method="em", **parameters), x, weights)


def parameters_of(model):
    return model.mean, model.loadings, model.noise_variance


def any_factors(x, k, seed=3):
    """Arbitrary parameters: neither principal axes nor the mean of the data."""
    rng = np.random.default_rng(seed)
    return Factors(np.nanmean(x, axis=0) + 0.3, rng.normal(size=(x.shape[1], k)), 0.7)


def expected(x, factors, weights=None):
    latent = Latent([factors])
    latent.update(Block(Span(0, len(x)), x, weights=weights))
    return latent


# One step


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("mask", MASKS)
def test_a_step_equals_that_of_plain_loops(mask, k):
    x = with_missing(low_rank(40, 6, 2), mask)
    factors = any_factors(x, k)
    full = expected(x, factors)
    rows = log_likelihoods(x, factors.mean, factors.loadings, factors.noise)
    np.testing.assert_allclose(full.log_likelihood, rows.sum(), rtol=1e-12)
    after = maximise(full.statistics[0], factors).after
    mean, loadings, noise = em_step(x, factors.mean, factors.loadings, factors.noise)
    np.testing.assert_allclose(after.mean, mean, atol=1e-10)
    np.testing.assert_allclose(after.noise, noise, rtol=1e-10)
    # The loadings are in principal axes, so only their products are compared.
    np.testing.assert_allclose(after.loadings @ after.loadings.T, loadings @ loadings.T, atol=1e-10)
    inner = after.loadings.T @ after.loadings
    np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-10)
    assert (np.diff(np.diag(inner)) <= 0).all()


def test_a_step_with_weights_and_ridge_equals_that_of_plain_loops():
    x = with_missing(low_rank(40, 6, 2), "a tenth")
    weights = np.random.default_rng(0).integers(0, 3, size=40) / 2
    factors = any_factors(x, 2)
    after = maximise(expected(x, factors, weights).statistics[0], factors, ridge=3.0).after
    mean, loadings, noise = em_step(
        x, factors.mean, factors.loadings, factors.noise, weights=weights, ridge=3.0
    )
    np.testing.assert_allclose(after.mean, mean, atol=1e-10)
    np.testing.assert_allclose(after.noise, noise, rtol=1e-10)
    np.testing.assert_allclose(after.loadings @ after.loadings.T, loadings @ loadings.T, atol=1e-10)


def test_latent_variables_after_a_step_are_standard_normal_again():
    """Parameter expansion: the transformed z have mean 0 and covariance 1 over the rows."""
    x = with_missing(low_rank(60, 6, 2), "a tenth")
    factors = any_factors(x, 2)
    full = expected(x, factors)
    step = maximise(full.statistics[0], factors)
    total, squares = np.zeros(2), np.zeros((2, 2))
    for row in x:
        z, spread = posterior(row, factors.mean, factors.loadings, factors.noise)
        turned = step.turn @ (z - step.centre)
        total += turned / len(x)
        squares += (step.turn @ spread @ step.turn.T + np.outer(turned, turned)) / len(x)
    np.testing.assert_allclose(total, 0.0, atol=1e-12)
    np.testing.assert_allclose(squares, np.eye(2), atol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_divergence_is_that_of_two_normal_distributions(k):
    rng = np.random.default_rng(0)
    old, new = (Factors(rng.normal(size=5), rng.normal(size=(5, k)), noise) for noise in (0.5, 0.8))
    a, b = covariance(old.loadings, old.noise), covariance(new.loadings, new.noise)
    apart, inverse = new.mean - old.mean, np.linalg.inv(b)
    nats = np.trace(inverse @ a) - 5 + apart @ inverse @ apart
    nats += np.linalg.slogdet(b)[1] - np.linalg.slogdet(a)[1]
    assert divergence(old, new) == pytest.approx(nats / 2 / 5, rel=1e-12)
    assert divergence(old, old) <= 1e-15


@pytest.mark.parametrize("noise", [1e-6, 1e-9, 1e-12])
def test_divergence_keeps_its_digits_where_there_is_little_noise(noise):
    """A mean that is off by one standard deviation of the noise is half a nat away, for any signal."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(6, 2))
    across = np.linalg.svd(loadings)[0][:, -1]  # not a direction of the signal
    old = Factors(np.zeros(6), loadings, noise)
    assert divergence(old, old) < 1e-9
    moved = Factors(np.sqrt(noise) * across, loadings, noise)
    assert divergence(old, moved) == pytest.approx(0.5 / 6, rel=1e-6)


def test_the_start_is_the_closed_form_of_pairwise_covariances():
    x = with_missing(low_rank(200, 6, 2), "a tenth")
    pairs = Pairwise(6)
    pairs.update(Block(Span(0, 200), x))
    mean, seen = np.nanmean(x, axis=0), ~np.isnan(x)
    np.testing.assert_allclose(pairs.mean, mean, rtol=1e-13)
    centred, counts = np.where(seen, x - mean, 0.0), seen.astype(float)
    pairwise = (centred.T @ centred) / (counts.T @ counts)
    np.testing.assert_allclose(pairs.covariance(), pairwise, atol=1e-12)
    values, vectors = np.linalg.eigh(pairwise)
    start = pairwise_start(pairs, 2)
    np.testing.assert_allclose(start.noise, values[:-2].mean(), rtol=1e-10)
    np.testing.assert_allclose(start.explained_variance, values[:-3:-1], rtol=1e-10)
    assert subspace_angles(start.components.T, vectors[:, -2:]).max() < 1e-10


# Convergence


@pytest.mark.parametrize("mask", MASKS)
def test_em_converges_to_the_result_of_plain_em(mask):
    x = with_missing(low_rank(40, 6, 2), mask)
    mean, loadings, noise = em(x, 2, steps=400)
    model = fitted(x, tol=1e-15, max_iter=500)
    rows = int((~np.isnan(x)).any(axis=1).sum())
    plain = log_likelihoods(x, mean, loadings, noise).sum() / rows
    assert model.log_likelihood == pytest.approx(plain, rel=1e-10)
    assert model.converged
    # At a maximum the likelihood is flat: parameters are accurate to the square root of its accuracy.
    np.testing.assert_allclose(model.get_covariance(), covariance(loadings, noise), atol=1e-5)
    np.testing.assert_allclose(model.mean, mean, atol=1e-5)


@pytest.mark.parametrize("mask", ["most", "large values"])
def test_no_direction_makes_the_data_more_likely(mask):
    """The gradient of the sum of normal log-densities, by finite differences, is zero after convergence."""
    x = with_missing(low_rank(30, 4, 1), mask)
    model = fitted(x, k=1, tol=1e-16, max_iter=500)

    def nats(vector):
        return log_likelihoods(x, vector[:4], vector[4:8, None], np.exp(vector[8])).sum()

    optimum = np.concatenate([model.mean, model.loadings[:, 0], [np.log(model.noise_variance)]])
    slope = approx_fprime(optimum, nats, 1e-6)
    away = approx_fprime(optimum + 0.05, nats, 1e-6)
    assert np.abs(slope).max() < 1e-4 * np.abs(away).max()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("mask", MASKS)
def test_no_iteration_makes_the_data_less_likely(mask, k, dtype):
    x = with_missing(low_rank(150, 6, 2).astype(dtype), mask)
    nats = fitted(x, k=k, tol=1e-12, max_iter=60).log_likelihoods
    assert len(nats) > 2
    assert (np.diff(nats) >= -1e-12 * np.abs(nats[:-1])).all()


@pytest.mark.parametrize("ridge", [0.5, 20.0])
def test_no_iteration_lowers_the_penalised_likelihood(ridge):
    """With the prior of the loadings: the log-likelihood minus ridge |W|^2 / (2 s2)."""
    x = with_missing(low_rank(60, 6, 2), "most")
    objectives = []
    for steps in range(1, 12):
        model = fitted(x, tol=0.0, max_iter=steps, ridge=ridge)
        nats = log_likelihoods(x, *parameters_of(model)).sum()
        objectives.append(nats - ridge * (model.loadings**2).sum() / (2 * model.noise_variance))
    assert (np.diff(objectives) >= -1e-10 * np.abs(objectives[:-1])).all()


def test_parameter_expansion_saves_most_iterations():
    x = with_missing(low_rank(60, 6, 2, noise=1.0), "a tenth")
    now = any_factors(x, 2)
    plain = now.mean, now.loadings, now.noise
    for _ in range(12):
        plain = em_step(x, *plain, expand=False)
    plainly = log_likelihoods(x, *plain).mean()
    best = fitted(x, tol=1e-14, max_iter=400).log_likelihood
    nats = fitted(x, tol=1e-14, max_iter=400).log_likelihoods
    assert best - nats[min(12, len(nats) - 1)] < 0.01 * (best - plainly)


@pytest.mark.parametrize(
    ("mask", "k"), [("a tenth", 3), ("a tenth", 5), ("blocks", 3), ("most", 3), ("most", 5)]
)
def test_low_rank_data_without_noise_is_recovered_from_observed_values(mask, k):
    """The subspace and the missing values are found, up to the smallest noise (1e-10 of the variance)."""
    rng = np.random.default_rng(0)
    axes = rng.normal(size=(12, 3))
    whole = rng.normal(size=(300, 3)) @ axes.T + 5
    x = with_missing(whole, mask)
    model = fitted(x, k=k, max_iter=400)
    assert subspace_angles(model.components[:3].T, axes).max() < 1e-5
    assert model.noise_variance < 1e-9 * model.total_variance
    assert (np.diff(model.log_likelihoods) >= -1e-12 * np.abs(model.log_likelihoods[:-1])).all()
    enough = (~np.isnan(x)).sum(axis=1) > 4
    np.testing.assert_allclose(model.impute(x)[enough], whole[enough], atol=1e-3)


def test_the_parameters_of_much_data_are_those_that_it_was_drawn_from():
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(8, 2)))[0] * [3.0, 2.0]
    whole = rng.normal(size=(20_000, 2)) @ axes.T + 0.5 * rng.normal(size=(20_000, 8)) + np.arange(8)
    x = with_missing(whole, "most")
    model = fitted(x)
    # Within five standard errors for n = 20,000 rows, of which 40% of the values are observed.
    np.testing.assert_allclose(model.mean, np.arange(8), atol=5 * 3 / np.sqrt(8000))
    np.testing.assert_allclose(model.noise_variance, 0.25, rtol=5 * np.sqrt(2 / (8000 * 6)))
    np.testing.assert_allclose(model.get_covariance(), covariance(axes, 0.25), atol=5 * 9 * np.sqrt(2 / 8000))


# Rows under a fitted model


@pytest.fixture(scope="module")
def model_and_rows():
    x = with_missing(low_rank(80, 6, 2), "most")
    return fitted(x), x


def test_log_likelihood_of_a_row_is_that_of_its_observed_values(model_and_rows):
    model, x = model_and_rows
    np.testing.assert_allclose(
        model.score_samples(x), log_likelihoods(x, *parameters_of(model)), rtol=1e-11, atol=1e-12
    )


def test_latent_variables_are_normal_given_the_observed_values(model_and_rows):
    model, x = model_and_rows
    means, spreads = model.latent(x)
    for row, mean, spread in zip(x, means, spreads, strict=True):
        wanted_mean, wanted_spread = posterior(row, *parameters_of(model))
        np.testing.assert_allclose(mean, wanted_mean, atol=1e-11)
        np.testing.assert_allclose(spread, wanted_spread, atol=1e-11)
    np.testing.assert_array_equal(model.transform(x), means)


def test_imputed_values_are_conditional_expectations_with_their_variances(model_and_rows):
    model, x = model_and_rows
    filled, variances = model.impute(x), model.impute_variance(x)
    for row, values, variance in zip(x, filled, variances, strict=True):
        wanted, spread = conditional(row, model.mean, model.get_covariance())
        np.testing.assert_allclose(values, wanted, atol=1e-11)
        np.testing.assert_allclose(variance, spread, atol=1e-11)
    is_observed = ~np.isnan(x)
    np.testing.assert_array_equal(filled[is_observed], x[is_observed])
    assert (variances[is_observed] == 0).all()


def test_rows_that_share_a_pattern_are_mapped_like_single_rows():
    """Few patterns in many rows are factorised once each: the results are the same up to rounding."""
    whole = low_rank(3000, 8, 3)
    x = with_missing(whole, "blocks")
    model = fitted(with_missing(whole, "a tenth"), k=3)
    assert len(np.unique(np.isnan(x), axis=0)) < 10
    together = model.transform(x), model.score_samples(x), model.impute_variance(x)
    alone = [
        np.concatenate([function(x[i : i + 1]) for i in range(100)])
        for function in (model.transform, model.score_samples, model.impute_variance)
    ]
    for many, one in zip(together, alone, strict=True):
        np.testing.assert_allclose(many[:100], one, rtol=1e-11, atol=1e-12)


def test_statistics_of_several_slabs_are_the_sums_over_fewer_rows():
    k = 40
    rows = 3 * matrices_per_slab(k, 50) + 7
    assert rows < 5000, "the test must be fast"
    x = with_missing(low_rank(rows, 50, k), "a tenth")
    factors = any_factors(x, k)
    full = expected(x, factors)
    assert full.count == rows
    part = sum(expected(x[i : i + 50], factors).log_likelihood for i in range(0, rows, 50))
    assert full.log_likelihood == pytest.approx(part, rel=1e-12)


# Difficult data

DATA = {
    "noise": lambda rng, n, d: rng.normal(size=(n, d)),
    "low rank": lambda rng, n, d: rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)),
    "uneven scales": lambda rng, n, d: rng.normal(size=(n, d)) * np.logspace(-5, 5, d),
    "zeros and ones": lambda rng, n, d: rng.integers(0, 2, size=(n, d)).astype(float),
    "heavy tails": lambda rng, n, d: rng.standard_cauchy(size=(n, d)),
    "far away": lambda rng, n, d: rng.normal(size=(n, d)) + 1e6 * rng.normal(size=d),
}


def model_or_refusal(ppca, x):
    try:
        return in_memory(ppca, x)
    except (DataError, ParameterError) as refused:
        return refused


@settings(max_examples=100)
@given(
    st.sampled_from(sorted(DATA)),
    st.integers(2, 40),
    st.integers(2, 9),
    st.sampled_from([0.0, 0.3, 0.8, 0.95]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(["em", "minibatch"]),
    st.data(),
)
def test_any_data_with_variance_has_a_model(kind, n, d, missing, ridge, method, data):
    """However few values are observed, results are finite, and no iteration lowers the likelihood."""
    k = data.draw(st.integers(1, min(n, d - 1)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = DATA[kind](rng, n, d)
    x[rng.random((n, d)) < missing] = np.nan
    ppca = PPCA(k, method=method, ridge=ridge, tol=1e-9, max_iter=15)
    model = model_or_refusal(ppca, x)
    if isinstance(model, Exception):
        words = "every value is missing|every column is constant|leave no direction for noise"
        assert re.search(words, str(model))
        return
    observed = np.isfinite(model.mean)
    assert model.noise_variance > 0
    assert np.isfinite(model.get_covariance()).all()
    assert np.isfinite(model.transform(x)).all()
    assert np.isfinite(model.impute(x)[:, observed]).all()
    assert (model.impute_variance(x)[:, observed] >= 0).all()
    if method == "em" and ridge == 0.0:
        nats = model.log_likelihoods
        assert (np.diff(nats) >= -1e-12 * np.abs(nats[:-1])).all()


def test_rows_without_values_are_counted_and_change_nothing():
    x = with_missing(low_rank(60, 6, 2), "a tenth")
    model = fitted(x)
    more = fitted(np.vstack([np.full((3, 6), np.nan), x, np.full((2, 6), np.nan)]))
    assert more.empty_rows == 5
    assert more.n_samples == model.n_samples == 60
    np.testing.assert_allclose(more.get_covariance(), model.get_covariance(), atol=1e-10)
    assert more.log_likelihood == pytest.approx(model.log_likelihood, rel=1e-12)
    assert any("5 rows have no value" in note for note in more.notes())
    nothing = np.full((1, 6), np.nan)
    np.testing.assert_allclose(more.transform(nothing), 0.0, atol=1e-15)
    np.testing.assert_allclose(more.impute(nothing)[0], more.mean, rtol=1e-14)
    np.testing.assert_allclose(more.impute_variance(nothing)[0], np.diag(more.get_covariance()), rtol=1e-12)
    assert more.score_samples(nothing) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("method", ["em", "minibatch", "auto"])
def test_features_that_were_never_observed_are_left_out_and_stay_missing(method):
    x = with_missing(low_rank(160, 6, 2), "a tenth")
    wider = np.insert(x, 2, np.nan, axis=1)
    ppca = PPCA(2, method=method, tol=1e-12)
    model = checked(PPCAModel, in_memory(ppca.using("em") if method == "auto" else ppca, wider))
    without = fitted(x, tol=1e-12)
    assert np.isnan(model.mean[2])
    assert np.isfinite(np.delete(model.mean, 2)).all()
    np.testing.assert_array_equal(model.components[:, 2], 0.0)
    inner = np.delete(np.delete(model.get_covariance(), 2, axis=0), 2, axis=1)
    np.testing.assert_allclose(inner, without.get_covariance(), atol=1e-5)
    assert model.log_likelihood == pytest.approx(without.log_likelihood, rel=1e-9)
    assert model.n_parameters == without.n_parameters
    assert model.total_variance == pytest.approx(without.total_variance, rel=1e-6)
    assert any("1 features were never observed" in note for note in model.notes())
    assert np.isnan(model.impute(wider)[:, 2]).all()
    assert np.isnan(model.impute_variance(wider)[:, 2]).all()
    assert np.isfinite(np.delete(model.impute(wider), 2, axis=1)).all()
    assert np.isfinite(model.transform(wider)).all()
    # A value of a feature that was never observed in the fit has no effect.
    changed = wider.copy()
    changed[:, 2] = 1e6
    np.testing.assert_array_equal(model.transform(changed), model.transform(wider))
    np.testing.assert_array_equal(model.score_samples(changed), model.score_samples(wider))
    np.testing.assert_array_equal(model.impute(changed)[:, 2], 1e6)


def test_constant_features_are_reported_and_do_no_harm():
    x = with_missing(low_rank(100, 5, 2), "a tenth")
    still = np.where(np.random.default_rng(0).random(100) < 0.3, np.nan, 7.3)
    model = fitted(np.column_stack([x, still]), max_iter=200)
    assert model.constant_features == 1
    assert any("1 features are constant" in note for note in model.notes())
    np.testing.assert_allclose(model.mean[5], 7.3, atol=1e-6)
    np.testing.assert_allclose(model.loadings[5], 0.0, atol=1e-4)
    np.testing.assert_allclose(model.impute(np.column_stack([x, still]))[:, 5], 7.3, atol=1e-3)


def test_a_feature_that_was_observed_once_does_not_disturb_the_others():
    x = with_missing(low_rank(100, 5, 2), "a tenth")
    once = np.full(100, np.nan)
    once[17] = 3.0
    model = fitted(np.column_stack([x, once]), max_iter=300)
    rest = fitted(x, max_iter=300)
    assert np.isfinite(model.log_likelihood)
    np.testing.assert_allclose(model.get_covariance()[:5, :5], rest.get_covariance(), atol=0.05)
    assert np.isfinite(model.impute(np.column_stack([x, once]))).all()
    assert model.score_samples(np.column_stack([x, once])[17:18]) > -50


@pytest.mark.parametrize("missing", [0.97, 0.99])
def test_a_ridge_keeps_very_sparse_data_from_being_overfitted(missing):
    """With few values per row, loadings can explain all observed values and predict none of the others."""
    whole = low_rank(2000, 100, 2, noise=0.5)
    x = whole.copy()
    x[np.random.default_rng(0).random(x.shape) < missing] = np.nan
    is_missing = np.isnan(x) & (~np.isnan(x)).any(axis=1)[:, None]

    def error(ridge):
        model = fitted(x, k=4, ridge=ridge, max_iter=100)
        assert np.isfinite(model.log_likelihood)
        assert np.isfinite(model.get_covariance()).all()
        return np.sqrt(np.mean((model.impute(x) - whole)[is_missing] ** 2))

    assert error(10.0) < error(0.0)


def test_few_values_per_row_are_reported():
    x = low_rank(100, 20, 2)
    x[np.random.default_rng(0).random(x.shape) < 0.9] = np.nan
    assert any("a ridge, or a holdout, guards" in note for note in fitted(x, k=2, max_iter=3).notes())


def test_weights_repeat_rows():
    rng = np.random.default_rng(3)
    x, weights = with_missing(low_rank(60, 6, 2), "a tenth"), rng.integers(0, 4, size=60)
    weighted = fitted(x, weights=weights.astype(float), tol=1e-14, max_iter=200)
    repeated = fitted(np.repeat(x, weights, axis=0), tol=1e-14, max_iter=200)
    assert weighted.n_samples == repeated.n_samples
    assert weighted.n_observed == repeated.n_observed
    assert weighted.log_likelihood == pytest.approx(repeated.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(weighted.get_covariance(), repeated.get_covariance(), atol=1e-7)
    np.testing.assert_allclose(weighted.mean, repeated.mean, atol=1e-7)


def test_rows_of_weight_zero_are_ignored():
    x = with_missing(low_rank(60, 6, 2), "a tenth")
    weights = np.ones(70)
    weights[60:] = 0.0
    junk = np.full((10, 6), 1e6)
    weighted = fitted(np.vstack([x, junk]), weights=weights)
    np.testing.assert_allclose(weighted.get_covariance(), fitted(x).get_covariance(), rtol=1e-7, atol=1e-9)
    # A feature with values in such rows only was never observed.
    x[:, 4] = np.nan
    model = fitted(np.vstack([x, junk]), weights=weights)
    assert np.isnan(model.mean[4])
    assert model.converged
    np.testing.assert_allclose(model.get_covariance(), fitted(x).get_covariance(), rtol=1e-7, atol=1e-9)


def test_order_of_rows_and_of_memory_do_not_matter():
    x = with_missing(low_rank(200, 6, 2), "most")
    model = fitted(x, max_iter=5, tol=0.0)
    shuffled = fitted(x[np.random.default_rng(0).permutation(200)], max_iter=5, tol=0.0)
    np.testing.assert_allclose(shuffled.get_covariance(), model.get_covariance(), rtol=1e-9, atol=1e-11)
    fortran = fitted(np.asfortranarray(x), max_iter=5, tol=0.0)
    np.testing.assert_allclose(fortran.get_covariance(), model.get_covariance(), rtol=1e-9, atol=1e-11)
    strided = np.zeros((400, 12))
    strided[::2, ::2] = x
    np.testing.assert_allclose(model.transform(strided[::2, ::2]), model.transform(x), atol=1e-12)


def test_order_of_features_does_not_matter():
    x = with_missing(low_rank(200, 6, 2), "most")
    turned = np.random.default_rng(0).permutation(6)
    model, other = (fitted(y, tol=1e-14, max_iter=300) for y in (x, x[:, turned]))
    np.testing.assert_allclose(
        other.get_covariance(), model.get_covariance()[np.ix_(turned, turned)], atol=1e-6
    )


@pytest.mark.parametrize("mask", ["a tenth", "most"])
def test_shift_and_scale(mask):
    """Data that is stored at a distance of 1e8 has lost all digits below 1e-8, and so have the results."""
    x = with_missing(low_rank(100, 5, 2, offset=0.0), mask)
    plain, moved, scaled = (fitted(y, tol=0.0, max_iter=6) for y in (x, x + 1e8, x * 1e-3))
    np.testing.assert_allclose(moved.get_covariance(), plain.get_covariance(), atol=1e-5)
    np.testing.assert_allclose(moved.mean - 1e8, plain.mean, atol=1e-6)
    np.testing.assert_allclose(moved.transform(x + 1e8), plain.transform(x), atol=1e-5)
    np.testing.assert_allclose(scaled.get_covariance(), plain.get_covariance() * 1e-6, rtol=1e-7, atol=1e-15)
    np.testing.assert_allclose(scaled.transform(x * 1e-3), plain.transform(x), atol=1e-7)


def test_float32_is_computed_in_double_and_mapped_to_float32():
    x = with_missing((low_rank(300, 6, 2) + 1e3).astype(np.float32), "a tenth")
    single, double = fitted(x, tol=1e-10), fitted(x.astype(np.float64), tol=1e-10)
    np.testing.assert_allclose(single.get_covariance(), double.get_covariance(), rtol=1e-6, atol=1e-9)
    for function in (single.transform, single.impute, single.impute_variance):
        assert function(x).dtype == np.float32
    assert single.score_samples(x).dtype == np.float64, "differences between rows are small beside their sum"
    np.testing.assert_allclose(single.transform(x), double.transform(x.astype(np.float64)), atol=1e-4)
    assert single.inverse_transform(single.transform(x)).dtype == np.float32


def test_a_tolerance_that_cannot_be_reached_ends_at_max_iter_and_is_reported():
    x = with_missing(low_rank(60, 6, 2), "a tenth")
    model = fitted(x, tol=1e-300, max_iter=4)
    assert not model.converged
    assert model.n_iter <= 4
    assert model.change > 0
    (note,) = [note for note in model.notes() if "max_iter" in note]
    assert "stopped by max_iter, when a step still moved the model by" in note
    assert fitted(x).converged
    assert fitted(x).change <= PPCA().tol
    assert fitted(x).notes() == []


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_model_stopped_by_max_iter_is_as_likely_as_the_last_evaluated_one(noise):
    """The last step is taken, but no extrapolation that was not evaluated."""
    rng = np.random.default_rng(0)
    x = with_missing(
        rng.normal(size=(100, 3)) @ rng.normal(size=(3, 8)) + noise * rng.normal(size=(100, 8)), "most"
    )
    rows = (~np.isnan(x)).any(axis=1)
    for steps in range(1, 16):
        model = fitted(x, k=3, tol=0.0, max_iter=steps)
        nats = model.score_samples(x)[rows].mean()
        assert nats >= model.log_likelihoods[-1] - 1e-9 * abs(nats)
        assert model.log_likelihood == model.log_likelihoods[-1]


@pytest.mark.parametrize("seed", range(6))
def test_em_stops_when_only_rounding_is_left_to_gain(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 5))
    x[rng.random(x.shape) < 0.3] = np.nan
    passes = PPCA(2, method="em", tol=0.0, max_iter=300).passes(MatrixSpec(30, 5, x.dtype))
    request, seen = next(passes), []
    while True:
        full = request.empty.empty_like()
        full.update(Block(Span(0, 30), x))
        seen.append(hash(tuple(np.asarray(value).tobytes() for value in full.parameters().values())))
        try:
            request = passes.send(full)
        except StopIteration as finished:
            model = finished.value
            break
    assert len(set(seen)) == len(seen), "no parameters are evaluated twice"
    assert len(seen) < 300
    assert model.converged
    variance = np.nanmean(np.nanvar(x, axis=0))
    assert 0.3e-10 < model.noise_variance / variance < 3e-10, (
        "the smallest noise that regressions can resolve"
    )


def test_missing_is_the_fraction_of_missing_values():
    x = with_missing(low_rank(60, 6, 2), "most")
    assert fitted(x, max_iter=2).missing == pytest.approx(np.isnan(x).mean(), rel=1e-12)
    assert fitted(x, max_iter=2).summary()["missing"] == pytest.approx(np.isnan(x).mean(), rel=1e-12)
    held_out = fitted(x, max_iter=2, holdout=0.2)
    assert held_out.missing == pytest.approx(np.isnan(x).mean(), abs=0.02), "held-out values are not missing"


def test_wide_data_starts_from_a_sample_of_rows_and_ends_the_same():
    """With more than 2048 features, pairwise covariances would be too large."""
    x = with_missing(low_rank(60, 2100, 2, noise=0.05), "a tenth")
    model = fitted(x, tol=1e-10, max_iter=60)
    assert model.converged
    assert model.constant_features == 0
    mean, filled = model.mean, model.impute(x)
    _, _, right = np.linalg.svd(filled - mean, full_matrices=False)
    assert subspace_angles(model.components.T, right[:2].T).max() < 0.05
    np.testing.assert_allclose(model.log_likelihood, model.score_samples(x).mean(), rtol=1e-10)
    x[:, 7] = np.nan
    assert np.flatnonzero(np.isnan(fitted(x, max_iter=2).mean)).tolist() == [7]


def test_held_out_values_do_not_influence_the_fit():
    x = with_missing(low_rank(100, 6, 2), "a tenth")
    hidden = Holdout(0.2, 5).chosen(np.arange(100), x)
    model = fitted(x, holdout=0.2, random_state=5)
    masked = fitted(np.where(hidden, np.nan, x))
    np.testing.assert_array_equal(model.get_covariance(), masked.get_covariance())
    np.testing.assert_array_equal(model.log_likelihoods, masked.log_likelihoods)
