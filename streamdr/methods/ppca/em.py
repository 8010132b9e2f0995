"""Expectation maximisation for probabilistic PCA: start values, the M step, and the size of a step.

The E step is a pass (`latent`). The M step is followed by parameter expansion (Liu, Rubin and Wu 1998): the
latent variables are made standard normal again by a change of mean and loadings. That reduces hundreds of
iterations to a handful.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg

from streamdr.core.blocks import AlignedArrays, Array
from streamdr.core.linalg import eigh_descending, fix_signs
from streamdr.methods.ppca.latent import Statistics
from streamdr.methods.ppca.pairwise import Pairwise
from streamdr.methods.ppca.posterior import Factors
from streamdr.methods.ppca.small_matrices import packed_length, unpacked

_MAX_LOG_NOISE = 600.0
"""The largest logarithm of the noise: an extrapolated step must not overflow."""
LEAST_NOISE = 1e-10
"""The noise variance is at least this part of the features' mean variance.

The regressions of the M step are accurate to some 1e-15 of the signal, and the noise is the square of their
residual. With much less noise, the gain of a step is lost in rounding.
"""


@dataclass(frozen=True, eq=False)
class Principal(AlignedArrays):
    """Probabilistic PCA in principal axes: the canonical form among all rotations of the loadings."""

    mean: Array
    components: Array
    """Orthonormal rows, by descending variance."""
    explained_variance: Array
    """The variance along each component, noise included."""
    noise: float

    @classmethod
    def of(cls, mean: Array, loadings: Array, noise: float) -> tuple[Principal, Array]:
        """The model with its loadings rotated to principal axes, signs fixed, and the rotation V of W V."""
        axes, lengths, rotation = scipy.linalg.svd(loadings, full_matrices=False, check_finite=False)
        components = fix_signs(axes.T.copy())
        signs = np.sign(np.einsum("ki,ik->k", components, axes))
        return cls(mean, components, lengths**2 + noise, noise), rotation.T * signs

    @cached_property
    def loadings(self) -> Array:
        """W, features x components."""
        return self.components.T * np.sqrt(np.maximum(self.explained_variance - self.noise, 0.0))

    @cached_property
    def factors(self) -> Factors:
        """The parameters for the E step."""
        return Factors(self.mean, np.ascontiguousarray(self.loadings), self.noise)

    def with_signs_of(self, like: Principal | None) -> Principal:
        """The same model with the signs of its components chosen as in another model."""
        if like is None:
            return self
        away = np.einsum("ij,ij->i", self.components, like.components) < 0.0
        return replace(self, components=np.where(away[:, None], -self.components, self.components))

    def vector(self, frame: Array) -> Array:
        """All parameters as a vector, the loadings rotated to be nearest to those of `frame` (Procrustes)."""
        left, _, right = np.linalg.svd(self.loadings.T @ frame)
        aligned = self.loadings @ (left @ right)
        return np.concatenate([aligned.ravel(), np.nan_to_num(self.mean), [np.log(self.noise)]])

    def at(self, vector: Array, least: float) -> Principal:
        """The model with the parameters of a vector, and at least the noise `least`."""
        shape = self.loadings.shape
        loadings, mean = vector[: self.loadings.size].reshape(shape), vector[self.loadings.size : -1]
        mean = np.where(np.isnan(self.mean), np.nan, mean)
        return Principal.of(mean, loadings, max(float(np.exp(min(vector[-1], _MAX_LOG_NOISE))), least))[0]

    def scale(self) -> Array:
        """The scale of each parameter for the norm of residuals: units of the noise."""
        ones = np.ones(self.loadings.size + len(self.mean) + 1)
        ones[:-1] /= np.sqrt(self.noise)
        ones[-1] = np.sqrt(len(self.mean))
        return ones


def start_from(mean: Array, covariance: Array, n_components: int, observed: Array) -> Principal:
    """The closed form for an estimate of the covariance that need not be positive semidefinite."""
    n_observed = int(observed.sum())
    values, vectors = eigh_descending(covariance, n_components)
    values, vectors = values[:n_components], vectors[:, :n_components]
    total = float(np.trace(covariance))
    noise = max(total - float(values.sum()), 0.0) / max(n_observed - n_components, 1)
    noise = max(noise, 1e-3 * total / n_observed)  # an estimate that is not definite can leave too little
    signal = np.maximum(values - noise, 1e-3 * noise)
    return Principal.of(mean, vectors * np.sqrt(signal), noise)[0]


def pairwise_start(pairs: Pairwise, n_components: int) -> Principal:
    """The start from the pairwise covariances of the features."""
    return start_from(pairs.mean, pairs.covariance(), n_components, pairs.counts > 0)


class Step(NamedTuple):
    """The result of an M step, and the map of the latent variables, z to turn (z - centre)."""

    after: Principal
    turn: Array
    centre: Array
    least: float
    """The lower bound of the noise."""


def maximise(statistics: Statistics, now: Factors, *, ridge: float = 0.0, floor: float = 0.0) -> Step:
    """The M step, with parameter expansion.

    For each feature j the normal equations [[G_j, s_j], [s_j', n_j]] [w_j; dmean_j] = [c_j; t_j] of its
    regression on the latent variables and 1; the noise is their residual variance. `ridge` is added
    to the diagonal of G_j.
    """
    k, p = now.order, packed_length(now.order)
    n_cols = len(now.mean)
    system = np.empty((k + 1, k + 1, n_cols))
    system[:k, :k] = unpacked(statistics.masked[:p], k)
    system[k, :k] = system[:k, k] = statistics.masked[p : p + k]
    counts = system[k, k] = statistics.masked[p + k]
    system[np.arange(k), np.arange(k)] += ridge
    unobserved = counts <= 0.0
    system[:, :, unobserved] = np.eye(k + 1)[:, :, None]
    matrices = np.moveaxis(system, 2, 0)
    right = statistics.residual.T[:, :, None]
    solution = _solved(matrices, right)[:, :, 0]
    left = float(statistics.squares[0]) - float(np.sum(solution * statistics.residual.T))
    observed = float(counts.sum())
    least = max(floor, LEAST_NOISE * (float(statistics.squares[0]) / observed))
    noise = max(left / observed, least)
    mean, loadings = now.mean + solution[:, k], solution[:, :k]
    rows = statistics.latent[-1]
    centre = statistics.latent[p : p + k] / rows
    mean = mean + loadings @ centre
    stretch = np.eye(k)
    if ridge == 0.0:  # parameter expansion would undo a penalty on the loadings' length
        covariance = unpacked(statistics.latent[:p], k) / rows - np.outer(centre, centre)
        stretch = scipy.linalg.cholesky(covariance, lower=True, check_finite=False)
    after, rotation = Principal.of(mean, loadings @ stretch, noise)
    return Step(after, rotation.T @ np.linalg.inv(stretch), centre, least)


def transformed_statistics(statistics: Statistics, before: Factors, step: Step) -> Statistics:
    """Statistics from before a step, expressed in the latent variables and about the mean after it."""
    k, p = before.order, packed_length(before.order)
    turn, centre = step.turn, step.centre
    shift = np.nan_to_num(step.after.mean - before.mean)

    def turned(stack: Array) -> Array:
        """Sums of E zz', E z and 1, in new latent variables."""
        squares, sums, counts = unpacked(stack[:p], k), stack[p : p + k], stack[p + k]
        crossed = sums[:, None] * _column(centre, stack)[None]
        moved = squares - crossed - np.swapaxes(crossed, 0, 1)
        moved += _column(np.outer(centre, centre), stack) * counts
        moved = np.einsum("ia,ab...,jb->ij...", turn, moved, turn)
        sums = np.tensordot(turn, sums - _column(centre, stack) * counts, 1)
        return np.concatenate([moved[np.tril_indices(k)], sums, counts[None]])

    masked = turned(statistics.masked)
    sums, counts = statistics.residual[k], statistics.masked[p + k]
    crossed = turn @ (statistics.residual[:k] - centre[:, None] * sums)
    residual = np.concatenate([crossed - shift * masked[p : p + k], (sums - shift * counts)[None]])
    squares = statistics.squares - 2 * (shift @ sums) + shift**2 @ counts
    return Statistics(masked, residual, turned(statistics.latent), squares)


def _column(vector: Array, stack: Array) -> Array:
    """A vector (or matrix) that broadcasts over the features, where the stack has features."""
    return vector[..., None] if stack.ndim == 2 else vector


def _solved(matrices: Array, right: Array) -> Array:
    """Solve positive definite systems, scaled to a unit diagonal."""
    scale = np.sqrt(np.einsum("nii->ni", matrices))
    scaled = matrices / (scale[:, :, None] * scale[:, None, :])
    np.einsum("nii->ni", scaled)[...] += 4 * np.finfo(np.float64).eps
    solved: Array = np.linalg.solve(scaled, right / scale[:, :, None]) / scale[:, :, None]
    return solved


def divergence(old: Factors, new: Factors) -> float:
    """The Kullback-Leibler divergence of the new model from the old, in nats per value: the step size."""
    observed = np.isfinite(old.mean) & np.isfinite(new.mean)
    d = int(observed.sum())
    w0, w1, shift = old.loadings[observed], new.loadings[observed], (new.mean - old.mean)[observed]
    inner = w1.T @ w1 + new.noise * np.eye(new.order)
    lower = scipy.linalg.cholesky(inner, lower=True, check_finite=False)

    def whitened(columns: Array) -> float:
        """The squared length of columns in the metric of the new model's inverse covariance.

        As a sum of squares: a difference of squares would cancel where there is little noise.
        """
        latent = scipy.linalg.cho_solve((lower, True), w1.T @ columns, check_finite=False)
        return float(np.sum((columns - w1 @ latent) ** 2)) / new.noise + float(np.sum(latent**2))

    across = scipy.linalg.solve_triangular(lower, w1.T, lower=True, check_finite=False)
    trace = whitened(w0) + old.noise * (d - float(np.sum(across**2))) / new.noise
    apart = log_determinant(new, d, lower) - log_determinant(old, d)
    return max(0.0, 0.5 * (trace - d + whitened(shift[:, None]) + apart)) / d


def log_determinant(factors: Factors, n_cols: int, lower: Array | None = None) -> float:
    """ln det (WW' + s2 I)."""
    if lower is None:
        inner = factors.loadings.T @ factors.loadings + factors.noise * np.eye(factors.order)
        lower = scipy.linalg.cholesky(inner, lower=True, check_finite=False)
    return 2.0 * float(np.log(np.diag(lower)).sum()) + (n_cols - factors.order) * float(np.log(factors.noise))


def sample_start(rows: Array, weights: Array, n_components: int) -> Principal:
    """The start from the principal axes of a sample, missing values filled by column means: for wide data."""
    mean = column_means(rows, weights)
    is_observed = np.isfinite(rows)
    centred = np.where(is_observed, rows - mean, 0.0)
    observed = float(weights @ is_observed.sum(axis=1))
    variance = float(weights @ np.einsum("ij,ij->i", centred, centred)) / max(observed, 1e-300)
    axes, lengths, _ = scipy.linalg.svd(
        (centred * np.sqrt(weights)[:, None]).T, full_matrices=False, check_finite=False
    )
    total = float(weights.sum())
    share = max(observed / (total * rows.shape[1]), 1e-3)
    signal = np.zeros(n_components)
    found = min(n_components, len(lengths))
    signal[:found] = lengths[:found] ** 2 / (total * share**2)
    directions = np.zeros((rows.shape[1], n_components))
    directions[:, :found] = axes[:, :found]
    noise = max(variance - float(signal.sum()) / rows.shape[1], 0.1 * variance, np.finfo(np.float64).tiny)
    return Principal.of(mean, directions * np.sqrt(np.maximum(signal - noise, 1e-3 * noise)), noise)[0]


def column_means(rows: Array, weights: Array) -> Array:
    """The mean of the observed values of each column; 0 where there are none."""
    is_observed = np.isfinite(rows)
    counts = weights @ is_observed
    means: Array = (weights @ np.where(is_observed, rows, 0.0)) / np.where(counts > 0, counts, 1.0)
    return means
