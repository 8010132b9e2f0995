"""Mixtures of probabilistic PCA against Gaussian formulas written out row by row, and a plain EM."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import streamdr
from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import in_memory
from streamdr.errors import DataError, ParameterError
from streamdr.methods.ppca import PPCA, PPCAMixture

SIZES = (300, 200, 120)


def clouds(missing: float = 0.0, d: int = 8, k: int = 2, apart: float = 4.0, seed: int = 0):
    """Rows of three clouds with different axes and noise, and the cloud of each row."""
    rng = np.random.default_rng(seed)
    rows = [
        rng.normal(size=(n, k)) @ rng.normal(size=(k, d))
        + rng.normal(size=(n, d)) * noise
        + rng.normal(size=d) * apart
        for n, noise in zip(SIZES, (0.3, 0.5, 0.2), strict=True)
    ]
    data, labels = np.concatenate(rows), np.repeat([0, 1, 2], SIZES)
    order = rng.permutation(len(data))
    data, labels = data[order], labels[order]
    data[rng.random(data.shape) < missing] = np.nan
    return data, labels


def fitted(method, data, weights=None):
    spec = MatrixSpec(data.shape[0], data.shape[1], data.dtype)
    return in_memory(method.routes(spec)[0].method, data, weights)


def gaussians(model):
    """Mean and covariance of each component."""
    for part in model.principals:
        yield part.mean, part.loadings @ part.loadings.T + part.noise * np.eye(len(part.mean))


def plain_joint(model, data):
    """ln pi + ln p(observed part | component), one row at a time."""
    joint = np.zeros((len(data), model.n_mixtures))
    for c, (mean, covariance) in enumerate(gaussians(model)):
        for i, row in enumerate(data):
            is_observed = np.isfinite(row)
            joint[i, c] = np.log(model.weights[c])
            if is_observed.any():
                joint[i, c] += multivariate_normal(
                    mean[is_observed], covariance[np.ix_(is_observed, is_observed)]
                ).logpdf(row[is_observed])
    return joint


def plain_step(model, data):
    """One EM step without parameter expansion, row by row: shares, means, loadings, noises."""
    joint = plain_joint(model, data)
    share = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    d, k = model.n_features, model.n_components
    found = []
    for c, part in enumerate(model.principals):
        w, s2 = part.loadings, part.noise
        system = np.zeros((d, k + 1, k + 1))
        right = np.zeros((d, k + 1))
        squares = count = 0.0
        for r, row in zip(share[:, c], data, strict=True):
            is_observed = np.isfinite(row)
            a = w[is_observed].T @ w[is_observed] + s2 * np.eye(k)
            z = np.linalg.solve(a, w[is_observed].T @ (row - part.mean)[is_observed])
            second = np.block(
                [[s2 * np.linalg.inv(a) + np.outer(z, z), z[:, None]], [z[None], np.ones((1, 1))]]
            )
            for j in np.flatnonzero(is_observed):
                system[j] += r * second
                right[j] += r * row[j] * np.append(z, 1.0)
                squares += r * row[j] ** 2
                count += r
        solved = np.linalg.solve(system, right[:, :, None])[:, :, 0]
        noise = (squares - np.sum(solved * right)) / count
        found.append((share[:, c].sum() / len(data), solved[:, k], solved[:, :k], noise))
    return found


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_likelihood_and_responsibilities_are_those_of_the_gaussians(missing):
    data, _ = clouds(missing)
    model = fitted(PPCAMixture(2, 3), data)
    some = data[:60]
    joint = plain_joint(model, some)
    np.testing.assert_allclose(model.score_samples(some), logsumexp(joint, axis=1), rtol=1e-11)
    share = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    np.testing.assert_allclose(model.predict_proba(some), share, atol=1e-12)
    np.testing.assert_array_equal(model.predict(some), np.argmax(share, axis=1))
    assert model.log_likelihood == pytest.approx(model.score_samples(data).mean(), rel=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_converged_mixture_is_a_fixed_point_of_a_plain_em_written_row_by_row(missing):
    data, _ = clouds(missing)
    model = fitted(PPCAMixture(2, 3, tol=1e-15, max_iter=400), data)
    for (weight, mean, loadings, noise), part, own in zip(
        plain_step(model, data), model.principals, model.weights, strict=True
    ):
        assert weight == pytest.approx(own, rel=1e-8)
        np.testing.assert_allclose(mean, part.mean, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(loadings, part.loadings, rtol=1e-5, atol=1e-5)
        assert noise == pytest.approx(part.noise, rel=1e-6)


@pytest.mark.parametrize("n_mixtures", [2, 3])
@pytest.mark.parametrize("missing", [0.0, 0.2, 0.5])
def test_the_likelihood_never_decreases_unless_a_component_is_restarted(missing, n_mixtures):
    data, _ = clouds(missing)
    model = fitted(PPCAMixture(2, n_mixtures, max_iter=60), data)
    history = model.log_likelihoods
    assert model.restarts == 0
    assert np.all(np.diff(history) >= -1e-12 * np.abs(history[1:]))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_separate_clouds_are_separated(missing):
    data, labels = clouds(missing)
    model = fitted(PPCAMixture(2, 3), data)
    found = model.predict(data)
    crossed = np.array([[np.sum((labels == a) & (found == b)) for b in range(3)] for a in range(3)])
    assert crossed.max(axis=1).sum() >= 0.995 * len(data)
    np.testing.assert_allclose(np.sort(model.weights), np.sort(SIZES) / sum(SIZES), atol=0.01)
    np.testing.assert_allclose(np.sort(model.noise_variance), [0.04, 0.09, 0.25], rtol=0.2)


def test_one_component_is_ppca():
    data, _ = clouds(0.3)
    one = fitted(PPCAMixture(2, 1, tol=1e-14, max_iter=1000), data)
    ppca = fitted(PPCA(2, method="em", tol=1e-14, max_iter=1000), data)
    assert one.log_likelihood == pytest.approx(ppca.log_likelihood, rel=1e-10)
    np.testing.assert_allclose(one.get_covariance(), ppca.get_covariance(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(one.impute(data), ppca.impute(data), rtol=1e-5, atol=1e-5)


def test_imputed_values_have_the_mean_and_variance_of_the_conditional_mixture():
    data, _ = clouds(0.3)
    model = fitted(PPCAMixture(2, 3), data)
    some = data[:40]
    joint = plain_joint(model, some)
    share = np.exp(joint - logsumexp(joint, axis=1)[:, None])
    filled, variance = model.impute(some), model.impute_variance(some)
    for i, row in enumerate(some):
        is_observed, is_missing = np.isfinite(row), np.isnan(row)
        means, spreads = [], []
        for mean, covariance in gaussians(model):
            gain = covariance[np.ix_(is_missing, is_observed)] @ np.linalg.inv(
                covariance[np.ix_(is_observed, is_observed)]
            )
            means.append(mean[is_missing] + gain @ (row - mean)[is_observed])
            spreads.append(
                np.diag(
                    covariance[np.ix_(is_missing, is_missing)]
                    - gain @ covariance[np.ix_(is_observed, is_missing)]
                )
            )
        expected = share[i] @ np.array(means)
        within = share[i] @ np.array(spreads)
        between = share[i] @ (np.array(means) - expected) ** 2
        np.testing.assert_allclose(filled[i, is_missing], expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(variance[i, is_missing], within + between, rtol=1e-8, atol=1e-10)
        np.testing.assert_array_equal(filled[i, is_observed], row[is_observed])
        assert not variance[i, is_observed].any()


def test_each_component_projects_like_a_single_ppca():
    data, _ = clouds(0.2)
    model = fitted(PPCAMixture(2, 3), data)
    latent = model.transform(data[:20]).reshape(20, 3, 2)
    for c, part in enumerate(model.principals):
        for i, row in enumerate(data[:20]):
            is_observed = np.isfinite(row)
            w = part.loadings[is_observed]
            z = np.linalg.solve(w.T @ w + part.noise * np.eye(2), w.T @ (row - part.mean)[is_observed])
            np.testing.assert_allclose(latent[i, c], z, rtol=1e-9, atol=1e-9)


def test_bic_chooses_the_true_size_and_stores_the_criteria_of_all():
    data, _ = clouds(0.1)
    model = fitted(PPCAMixture([1, 2, 3], [1, 2, 3, 4]), data)
    assert (model.n_mixtures, model.n_components) == (3, 2)
    assert len(model.criteria) == 12
    assert model.criteria.min() == pytest.approx(model.bic)
    alone = fitted(PPCAMixture(2, 3), data)
    np.testing.assert_array_equal(model.means, alone.means)
    free = 3 * (8 + 8 * 2 - 1 + 1) + 2
    assert alone.bic == pytest.approx(free * np.log(len(data)) - 2 * alone.score_samples(data).sum())
    assert any("BIC" in note for note in model.notes())


def test_weights_are_repetitions():
    data, _ = clouds(0.0)
    weights = np.random.default_rng(3).integers(0, 4, len(data)).astype(float)
    by_weight = fitted(PPCAMixture(2, 3, tol=1e-12), data, weights)
    repeated = fitted(PPCAMixture(2, 3, tol=1e-12), np.repeat(data, weights.astype(int), axis=0))
    assert by_weight.log_likelihood == pytest.approx(repeated.log_likelihood, rel=1e-8)
    np.testing.assert_allclose(by_weight.get_covariance(), repeated.get_covariance(), rtol=1e-5, atol=1e-6)


def test_a_component_without_rows_is_restarted():
    rng = np.random.default_rng(1)
    near = rng.normal(size=(400, 6))
    far = 60.0 + rng.normal(size=(20, 6))
    data = np.concatenate([near, far, np.full((3, 6), 1e4) + rng.normal(size=(3, 6))])
    model = fitted(PPCAMixture(2, 4, max_iter=60), data)
    assert model.restarts > 0
    assert any("components with too few rows were restarted" in note for note in model.notes())
    assert np.isfinite(model.log_likelihood)
    assert len(set(model.predict(data[:400])) & set(model.predict(data[400:420]))) == 0


def test_no_component_has_less_noise_than_the_floor():
    rng = np.random.default_rng(2)
    line = np.outer(rng.normal(size=200), np.ones(5))  # no noise at all
    data = np.concatenate([line, rng.normal(size=(200, 5)) + 20.0])
    model = fitted(PPCAMixture(1, 2, variance_floor=1e-4), data)
    overall = np.var(data, axis=0).mean()
    assert model.noise_variance.min() == pytest.approx(1e-4 * overall, rel=0.05)
    assert model.floored == 1
    assert np.isfinite(model.log_likelihood)


def test_samples_have_the_covariance_that_the_mixture_describes():
    data, _ = clouds(0.0)
    model = fitted(PPCAMixture(2, 3), data)
    rows, labels = model.sample(200_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(labels) / len(labels), model.weights, atol=0.005)
    expected = model.get_covariance()
    np.testing.assert_allclose(np.cov(rows.T), expected, atol=0.02 * np.trace(expected) / 8)


def test_rows_and_features_without_values_are_left_out_and_reported():
    data, _ = clouds(0.1)
    data[:7] = np.nan
    data = np.column_stack([data, np.full(len(data), np.nan)])
    model = fitted(PPCAMixture(2, 3), data)
    assert model.empty_rows == 7
    assert np.isnan(model.means[:, -1]).all()
    assert np.isfinite(model.means[:, :-1]).all()
    filled = model.impute(data)
    assert np.isnan(filled[:, -1]).all()
    assert np.isfinite(filled[:, :-1]).all()
    np.testing.assert_allclose(model.predict_proba(data[:7]), np.tile(model.weights, (7, 1)), rtol=1e-12)
    assert len(model.notes()) == 2


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_mixtures": 0}, "0 is not at least 1"),
        ({"n_mixtures": []}, "empty list"),
        ({"n_mixtures": 2.5}, "not a whole number"),
        ({"n_components": 0}, "0 is not at least 1"),
        ({"n_components": 8}, "n_features = 8"),
        ({"n_mixtures": 1000}, "the data has 620"),
        ({"variance_floor": 0.0}, "above 0"),
        ({"tol": -1.0}, "negative"),
        ({"max_iter": 0}, "not at least 1"),
        ({"ridge": -1.0}, "negative"),
    ],
)
def test_impossible_parameters_are_refused_by_name(parameters, words):
    data, _ = clouds()
    with pytest.raises(ParameterError, match=words) as caught:
        fitted(PPCAMixture(**parameters), data)
    assert caught.value.parameter in parameters


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.full((20, 4), np.nan), "every value is missing"),
        (np.full((20, 4), 3.0), "every column is constant"),
        (np.ones((1, 4)), "not one sample"),
    ],
)
def test_data_that_cannot_be_fitted_is_refused(data, words):
    with pytest.raises(DataError, match=words):
        fitted(PPCAMixture(1, 2), data)


def test_a_tolerance_that_is_not_reached_leaves_a_usable_model():
    data, _ = clouds(0.2)
    model = fitted(PPCAMixture(2, 3, tol=0.0, max_iter=2), data)
    assert not model.converged
    assert any("max_iter=2" in note for note in model.notes())
    assert np.isfinite(model.transform(data)).all()


def test_a_saved_mixture_comes_back_to_the_bit(tmp_path):
    data, _ = clouds(0.2)
    mixture = streamdr.PPCAMixture(2, 3).fit(data)
    mixture.save(tmp_path / "mixture.zarr")
    loaded = streamdr.load_model(tmp_path / "mixture.zarr")
    np.testing.assert_array_equal(loaded.predict_proba(data), mixture.predict_proba(data))
    np.testing.assert_array_equal(loaded.impute(data), mixture.impute(data))
    assert not hasattr(mixture, "partial_fit")
