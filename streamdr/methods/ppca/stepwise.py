"""Stepwise EM: a step after each minibatch, from decaying averages (Cappe and Moulines 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec
from streamdr.methods.ppca.em import (
    LEAST_NOISE,
    Principal,
    column_means,
    divergence,
    maximise,
    pairwise_start,
    sample_start,
    transformed_statistics,
)
from streamdr.methods.ppca.latent import Latent, Statistics
from streamdr.methods.ppca.model import PPCAModel
from streamdr.methods.ppca.pairwise import Pairwise
from streamdr.statistics.sample import Sample

PAIRWISE_COLUMNS = 2048
"""Up to this many features, EM starts from pairwise covariances."""
_SAMPLE_ROWS, _SAMPLE_BYTES = 1024, 64 << 20
"""For more features, it starts from a sample of at most this many rows and bytes."""

FORGETTING = 0.7
"""The t-th minibatch weighs t^-0.7: enough to forget the start, little enough to average the noise."""


def sample_rows(data: MatrixSpec, n_components: int) -> int:
    """The number of rows of the sample that EM starts from where there are many features."""
    affordable = max(4 * n_components, _SAMPLE_BYTES // (8 * data.n_cols))
    return min(_SAMPLE_ROWS, affordable, data.n_rows)


class StartStatistics(NamedTuple):
    """The statistics that EM starts from: pairwise covariances, or a sample."""

    pairs: Pairwise | None
    sample: Sample | None

    def principal(self, n_components: int) -> Principal:
        """Parameters to start from."""
        if self.pairs is not None:
            return pairwise_start(self.pairs, n_components)
        assert self.sample is not None  # one of the two is set
        return sample_start(self.sample.rows, self.sample.weights, n_components)

    def features(self) -> tuple[Array, Array]:
        """The mean and the variance of each observed feature."""
        if self.pairs is not None:
            counts, mean = self.pairs.counts, self.pairs.mean
            return mean[counts > 0], np.diag(self.pairs.covariance())[counts > 0]
        assert self.sample is not None
        rows, weights = self.sample.rows, self.sample.weights
        is_observed = np.isfinite(rows)
        counts, mean = weights @ is_observed, column_means(rows, weights)
        with np.errstate(over="ignore"):  # the caller checks the result
            squares = weights @ np.where(is_observed, rows - mean, 0.0) ** 2
        return mean[counts > 0], squares[counts > 0] / counts[counts > 0]


class StepwiseEM:
    """The state of stepwise EM: parameters, and the average statistics of a row."""

    def __init__(self, now: Principal, ridge: float, constant: int) -> None:
        self.now = now
        self.ridge = ridge
        self.constant = constant
        self.taken = 0
        self.statistics: Statistics | None = None
        self.totals, self.held = np.zeros(6), np.zeros(3)
        self.log_likelihood = np.nan
        """The log-likelihood per row, averaged over minibatches like the statistics, each before its step."""
        self.change = np.inf
        # A minibatch of few rows may have no residual variance.
        self._floor = LEAST_NOISE * (float(np.sum(now.loadings**2)) / len(now.mean) + now.noise)

    @classmethod
    def after(cls, model: PPCAModel, ridge: float, minibatches: int) -> StepwiseEM:
        """A state that continues from a fitted model, whose rows count as `minibatches` minibatches.

        The statistics of a row are those that the model itself expects: E zz' is the identity, E rz' is W,
        and E |r|^2 the trace of its covariance. For complete rows, at the maximum of the likelihood, they
        equal the statistics of the rows. Each feature counts as observed with the average frequency.
        """
        steps = cls(model.principal, ridge, model.constant_features)
        k, observed = model.n_components, np.isfinite(model.mean)
        d, loadings = int(observed.sum()), np.where(observed[:, None], steps.now.loadings, 0.0)
        share = model.n_observed / (model.n_samples * d)
        latent = np.concatenate([np.eye(k)[np.tril_indices(k)], np.zeros(k), np.ones(1)])
        steps.statistics = Statistics(
            share * np.outer(latent, observed),
            share * np.vstack([loadings.T, np.zeros(len(observed))]),
            latent,
            np.array([share * (float(np.sum(loadings**2)) + d * steps.now.noise)]),
        )
        steps.taken = minibatches
        nats = model.n_samples * model.log_likelihood
        rows = model.n_samples + model.empty_rows
        steps.totals = np.array([model.n_samples, model.empty_rows, model.n_observed, nats, rows, 0.0])
        steps.log_likelihood, steps.change = model.log_likelihood, model.change
        return steps

    def step(self, full: Latent) -> None:
        """Add one minibatch, whose E step used the current parameters."""
        if full.count == 0:
            return
        self.totals, self.held = self.totals + full.totals, self.held + full.held
        if full.rows == 0:
            return
        self.taken += 1
        weight = float(self.taken) ** -FORGETTING
        new = Statistics(*(array / full.rows for array in full.statistics[0]))
        nats = full.log_likelihood / full.rows
        if self.statistics is not None:
            old = self.statistics
            new = Statistics(*((1 - weight) * a + weight * b for a, b in zip(old, new, strict=True)))
            nats = (1 - weight) * self.log_likelihood + weight * nats
        ridge = self.ridge / float(self.totals[0])
        step = maximise(new, self.now.factors, ridge=ridge, floor=self._floor)
        self.change = divergence(self.now.factors, step.after.factors)
        # The step changes the latent variables: express the statistics in the new ones.
        self.statistics = transformed_statistics(new, self.now.factors, step)
        self.now, self.log_likelihood = step.after, nats

    def model(self, tol: float) -> PPCAModel:
        """The model of the current parameters."""
        history, converged = [self.log_likelihood], self.change <= tol
        return fitted(
            self.now, self.totals, self.held, history, "minibatch", self.change, converged, self.constant
        )


def fitted(
    now: Principal,
    totals: Array,
    held: Array,
    history: Sequence[float],
    solver: str,
    change: float,
    converged: bool,
    constant: int,
) -> PPCAModel:
    """A model of parameters, and of the counts of the passes that led to them."""
    rows, empty_rows, observed, _, _, n_unmodelled = totals
    count, density, squares = held
    return PPCAModel(
        mean=now.mean,
        components=now.components,
        explained_variance=now.explained_variance,
        noise_variance=now.noise,
        n_samples=float(rows),
        n_observed=float(observed),
        solver=solver,
        log_likelihood=history[-1],
        log_likelihoods=np.array(history),
        converged=converged,
        change=change,
        empty_rows=int(empty_rows),
        constant_features=constant,
        new_features=int(n_unmodelled),
        held_out=np.array([count, density / count, np.sqrt(squares / count)]) if count else None,
    )
