"""Probabilistic PCA with missing values in its simplest form: one row at a time, with explicit inverses."""

from __future__ import annotations

import numpy as np
from scipy.stats import multivariate_normal

MASKS = {
    "a tenth": lambda rng, x: rng.random(x.shape) < 0.1,
    "most": lambda rng, x: rng.random(x.shape) < 0.6,
    "blocks": lambda rng, x: (np.arange(len(x))[:, None] // 7 + np.arange(x.shape[1]) // 2) % 3 == 0,
    "large values": lambda rng, x: x > np.quantile(x, 0.8, axis=0),
    "the end of each row": lambda rng, x: (
        np.arange(x.shape[1]) > rng.integers(1, x.shape[1], size=(len(x), 1))
    ),
}


def low_rank(n, d, k, noise=0.3, seed=0, offset=2.0):
    """Rows of a probabilistic PCA: the variances along its axes fall from k^2 times the noise on."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(d, k)))[0] * np.arange(k + 1, 1, -1)
    return rng.normal(size=(n, k)) @ axes.T + noise * rng.normal(size=(n, d)) + offset


def with_missing(x, mask, seed=1):
    incomplete = np.array(x, dtype=x.dtype if x.dtype.kind == "f" else np.float64)
    incomplete[MASKS[mask](np.random.default_rng(seed), x)] = np.nan
    return incomplete


def covariance(loadings, noise):
    return loadings @ loadings.T + noise * np.eye(len(loadings))


def log_likelihoods(x, mean, loadings, noise):
    """The log-density of the observed values of each row: a marginal of the normal distribution."""
    whole = covariance(loadings, noise)
    found = np.zeros(len(x))
    for i, row in enumerate(x):
        is_observed = ~np.isnan(row)
        if is_observed.any():
            density = multivariate_normal(mean[is_observed], whole[np.ix_(is_observed, is_observed)])
            found[i] = density.logpdf(row[is_observed])
    return found


def posterior(row, mean, loadings, noise):
    """The mean and covariance of z given the observed values of a row: z and x are jointly normal."""
    is_observed = ~np.isnan(row)
    across = loadings[is_observed]  # the covariance of x and z
    inverse = np.linalg.inv(covariance(loadings, noise)[np.ix_(is_observed, is_observed)])
    centre = across.T @ inverse @ (row[is_observed] - mean[is_observed])
    return centre, np.eye(loadings.shape[1]) - across.T @ inverse @ across


def conditional(row, mean, whole):
    """A row's missing values given the others: their mean and variance, by the blocks of the covariance."""
    is_observed = ~np.isnan(row)
    is_missing = ~is_observed
    inverse = np.linalg.inv(whole[np.ix_(is_observed, is_observed)])
    pull = whole[np.ix_(is_missing, is_observed)] @ inverse
    filled, variance = row.copy(), np.zeros(len(row))
    filled[is_missing] = mean[is_missing] + pull @ (row[is_observed] - mean[is_observed])
    variance[is_missing] = np.diag(
        whole[np.ix_(is_missing, is_missing)] - pull @ whole[np.ix_(is_observed, is_missing)]
    )
    return filled, variance


def em_step(x, mean, loadings, noise, *, expand=True, weights=None, ridge=0.0):
    """One step of EM. Rows without observed values are left out; `expand` makes z standard normal again."""
    weights = np.ones(len(x)) if weights is None else weights
    d, k = loadings.shape
    rows = [i for i in range(len(x)) if not np.isnan(x[i]).all()]
    posteriors = {i: posterior(x[i], mean, loadings, noise) for i in rows}
    new_mean, new_loadings = mean.copy(), np.zeros((d, k))
    left, count = 0.0, 0.0
    for j in range(d):
        have = [i for i in rows if not np.isnan(x[i, j])]
        if not have:
            continue
        # The regression of feature j on z and 1, in expectation.
        system, right = np.zeros((k + 1, k + 1)), np.zeros(k + 1)
        system[:k, :k] += ridge * np.eye(k)
        for i in have:
            z, spread = posteriors[i]
            system[:k, :k] += weights[i] * (np.outer(z, z) + spread)
            system[:k, k] += weights[i] * z
            system[k, :k] += weights[i] * z
            system[k, k] += weights[i]
            right += weights[i] * x[i, j] * np.append(z, 1.0)
        solution = np.linalg.solve(system, right)
        w, m = solution[:k], solution[k]
        for i in have:
            z, spread = posteriors[i]
            left += weights[i] * ((x[i, j] - m - w @ z) ** 2 + w @ spread @ w)
            count += weights[i]
        left += ridge * (w @ w)
        new_loadings[j], new_mean[j] = w, m
    if expand:
        total = sum(weights[i] for i in rows)
        centre = sum(weights[i] * posteriors[i][0] for i in rows) / total
        spread = sum(weights[i] * (np.outer(z, z) + v) for i, (z, v) in posteriors.items()) / total
        new_mean = new_mean + new_loadings @ centre
        if ridge == 0.0:
            new_loadings = new_loadings @ np.linalg.cholesky(spread - np.outer(centre, centre))
    return new_mean, new_loadings, left / count


def em(x, k, steps=200, weights=None, seed=0):
    """Steps of EM from a start near the data, until they converge."""
    rng = np.random.default_rng(seed)
    mean, variance = np.nanmean(x, axis=0), float(np.nanmean(np.nanvar(x, axis=0)))
    now = mean, np.sqrt(variance) * rng.normal(size=(x.shape[1], k)), variance
    for _ in range(steps):
        before, now = now, em_step(x, *now, weights=weights)
        if np.abs(covariance(*now[1:]) - covariance(*before[1:])).max() < 1e-13 * variance:
            break
    return now
