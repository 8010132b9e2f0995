"""Statistics of rows with missing values against sums row by row: one component, a mixture, samples."""

from __future__ import annotations

import numpy as np
import pytest
from plain_ppca import MASKS, log_likelihoods, low_rank, posterior, with_missing
from scipy.special import logsumexp

from streamdr.core.blocks import Block, Span
from streamdr.methods.ppca.holdout import Holdout
from streamdr.methods.ppca.latent import Latent
from streamdr.methods.ppca.pairwise import Pairwise
from streamdr.methods.ppca.posterior import Factors
from streamdr.statistics.sample import Sample


def components(x, orders, seed=3):
    rng = np.random.default_rng(seed)
    mean = np.nanmean(x, axis=0)
    return [
        Factors(mean + rng.normal(size=x.shape[1]), rng.normal(size=(x.shape[1], k)), rng.uniform(0.3, 1.0))
        for k in orders
    ]


def plain_statistics(x, factors, weights):
    """Sums of E zz' (lower triangle), E z and 1: over the rows that have each feature, and over all rows."""
    k = factors.order
    lower = np.tril_indices(k)
    length = len(lower[0]) + k + 1
    masked, residual = np.zeros((length, x.shape[1])), np.zeros((k + 1, x.shape[1]))
    latent, squares = np.zeros(length), 0.0
    for row, weight in zip(x, weights, strict=True):
        is_observed = ~np.isnan(row)
        if not is_observed.any():
            continue
        z, spread = posterior(row, factors.mean, factors.loadings, factors.noise)
        stacked = weight * np.concatenate([(np.outer(z, z) + spread)[lower], z, [1.0]])
        left = np.where(is_observed, row - factors.mean, 0.0)
        masked += np.outer(stacked, is_observed)
        latent += stacked
        residual += weight * np.outer(np.append(z, 1.0), left)
        squares += weight * left @ left
    return masked, residual, latent, squares


def require_close(got, want):
    for name, mine, plain in zip(got._fields, got, want, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_statistics_of_one_component(mask, weighted):
    x = with_missing(low_rank(40, 5, 2), mask)
    weights = np.random.default_rng(0).uniform(0, 2, size=40) if weighted else None
    (one,) = components(x, [2])
    full = Latent([one])
    full.update(Block(Span(0, 40), x, weights=weights))
    weights = np.ones(40) if weights is None else weights
    require_close(full.statistics[0], plain_statistics(x, one, weights))
    some, n_observed = (~np.isnan(x)).any(axis=1), (~np.isnan(x)).sum(axis=1)
    nats = weights @ log_likelihoods(x, one.mean, one.loadings, one.noise)
    assert full.log_likelihood == pytest.approx(nats, rel=1e-11)
    assert full.rows == pytest.approx(weights @ some, rel=1e-12)
    assert full.observed == pytest.approx(weights @ n_observed, rel=1e-12)
    assert (full.count, full.empty_rows, full.n_unmodelled) == (40, int(np.count_nonzero(~some)), 0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_statistics_of_a_mixture_are_weighted_by_responsibilities(mask, weighted):
    x = with_missing(low_rank(40, 5, 2), mask)
    weights = np.random.default_rng(0).uniform(0, 2, size=40) if weighted else np.ones(40)
    factors, shares = components(x, [2, 1, 3]), np.array([0.5, 0.2, 0.3])
    full = Latent(factors, shares)
    full.update(Block(Span(0, 40), x, weights=weights if weighted else None))
    joint = np.stack([log_likelihoods(x, one.mean, one.loadings, one.noise) for one in factors])
    joint += np.log(shares)[:, None]
    rows = logsumexp(joint, axis=0)
    assert full.log_likelihood == pytest.approx(weights @ rows, rel=1e-11)
    responsible = np.exp(joint - rows)
    np.testing.assert_allclose(responsible.sum(axis=0), 1.0, rtol=1e-12)
    for one, statistics, share in zip(factors, full.statistics, responsible, strict=True):
        require_close(statistics, plain_statistics(x, one, weights * share))


def test_held_out_values_are_treated_as_missing_in_a_mixture():
    x = with_missing(low_rank(40, 5, 2), "a tenth")
    factors, shares, hidden = components(x, [2, 1]), np.array([0.6, 0.4]), Holdout(0.3, 1)
    full, masked = Latent(factors, shares, hidden), Latent(factors, shares)
    full.update(Block(Span(0, 40), x))
    masked.update(Block(Span(0, 40), np.where(hidden.chosen(np.arange(40), x), np.nan, x)))
    assert full.log_likelihood == masked.log_likelihood
    for mine, other in zip(full.statistics, masked.statistics, strict=True):
        require_close(mine, other)


def test_values_of_features_that_were_never_observed_are_counted_and_left_out():
    x = with_missing(low_rank(40, 5, 2), "a tenth")
    (one,) = components(x, [2])
    never_observed = Factors(np.where(np.arange(5) == 3, np.nan, one.mean), one.loadings, one.noise)
    full, without = Latent([never_observed]), Latent([one])
    full.update(Block(Span(0, 40), x))
    without.update(Block(Span(0, 40), np.where(np.arange(5) == 3, np.nan, x)))
    assert full.n_unmodelled == np.count_nonzero(~np.isnan(x[:, 3]))
    assert full.log_likelihood == without.log_likelihood
    require_close(full.statistics[0], without.statistics[0])


def test_pairwise_statistics_with_weights_are_those_of_repeated_rows():
    x = with_missing(low_rank(50, 4, 2, offset=1e6), "most")
    weights = np.random.default_rng(0).integers(0, 4, size=50)
    weighted, repeated = Pairwise(4), Pairwise(4)
    weighted.update(Block(Span(0, 50), x, weights=weights.astype(float)))
    more = np.repeat(x, weights, axis=0)
    repeated.update(Block(Span(0, len(more)), more))
    np.testing.assert_array_equal(weighted.pairs, repeated.pairs)
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-14)
    np.testing.assert_allclose(weighted.covariance(), repeated.covariance(), rtol=1e-9, atol=1e-9)


def test_pairs_that_are_never_observed_together_have_no_covariance():
    x = low_rank(50, 4, 2)
    x[:25, 0], x[25:, 1], x[:, 3] = np.nan, np.nan, np.nan
    pairs = Pairwise(4)
    pairs.update(Block(Span(0, 50), x))
    assert pairs.covariance()[0, 1] == pairs.covariance()[1, 0] == 0.0
    np.testing.assert_array_equal(pairs.covariance()[3], 0.0)
    assert np.isnan(pairs.mean[3])
    assert pairs.counts.tolist() == [25, 25, 50, 0]
    assert pairs.rows.tolist() == [50, 0]


def test_a_sample_has_distinct_rows_drawn_with_equal_probability():
    x = np.arange(60.0)[:, None] * [1.0, 2.0]
    drawn = np.zeros(60)
    for seed in range(400):
        sample = Sample(2, 15, seed)
        sample.update(Block(Span(0, 60), x))
        rows = sample.rows[:, 0].astype(int)
        assert len(set(rows)) == 15
        np.testing.assert_array_equal(sample.rows, x[rows])
        drawn[rows] += 1
    expected, spread = 400 * 15 / 60, np.sqrt(400 * 0.25 * 0.75)
    assert np.abs(drawn - expected).max() < 4.5 * spread


def test_a_sample_larger_than_the_data_is_all_rows():
    x, weights = low_rank(20, 3, 1), np.arange(20.0)
    sample = Sample(3, 100)
    sample.update(Block(Span(0, 20), x, weights=weights))
    order = np.argsort(sample.weights)
    np.testing.assert_array_equal(sample.weights[order], weights[1:])
    np.testing.assert_array_equal(sample.rows[order], x[1:], "without the row of weight zero")
