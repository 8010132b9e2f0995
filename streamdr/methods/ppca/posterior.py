"""The posterior of the latent variables of rows with missing values, under x = W z + mean + noise.

With M the 0/1 mask of observed values, R = M o (X - mean) and A_i = I + W' diag(m_i) W / s2, a row's latent
variables are normal with covariance A_i^-1 and mean A_i^-1 W' r_i / s2 (Tipping and Bishop 1999, for the
observed part of each row). The A_i of all rows are one matrix product, of M with the packed w_j w_j' / s2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array
from streamdr.core.buffers import scratch
from streamdr.methods.ppca.small_matrices import invert, matrices_per_slab, outer, packed_length, unpacked

_DOUBLE = np.dtype(np.float64)
LN_2PI = float(np.log(2 * np.pi))
_LOW_NOISE_RATIO = 1e4
"""The ratio of signal to noise above which squares are not subtracted, to avoid cancellation."""


@dataclass(frozen=True, eq=False)
class Factors(AlignedArrays):
    """The parameters of one probabilistic PCA. A feature that was never observed has a mean of NaN."""

    mean: Array
    loadings: Array
    """W, features x components."""
    noise: float

    @property
    def order(self) -> int:
        """The number of components."""
        return int(self.loadings.shape[1])

    @cached_property
    def observed_features(self) -> Array | None:
        """The mask of features that were observed in the fit; None where all were."""
        observed: Array = np.isfinite(self.mean)
        return None if observed.all() else observed

    @cached_property
    def centre(self) -> Array:
        """The mean; 0 for features that were never observed."""
        observed = self.observed_features
        return self.mean if observed is None else np.where(observed, self.mean, 0.0)

    @cached_property
    def low_noise(self) -> bool:
        """Whether there is so little noise that a difference of squares would cancel."""
        return float(np.sum(self.loadings**2)) > _LOW_NOISE_RATIO * self.noise * len(self.mean)

    @cached_property
    def products(self) -> Array:
        """w_j w_j' / s2 of each feature, packed: one column per feature."""
        return outer(np.ascontiguousarray(self.loadings.T) / np.sqrt(self.noise))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without cached properties


@dataclass(frozen=True, eq=False)
class ObservedRows:
    """Centred rows with the mask of their observed values."""

    residual: Array
    """X - mean where observed, else 0."""
    mask: Array
    """1.0 where observed, else 0."""

    @cached_property
    def observed(self) -> Array:
        """The number of observed values of each row."""
        counts: Array = self.mask @ np.ones(self.mask.shape[1])
        return counts

    @cached_property
    def squares(self) -> Array:
        """The sum of squares of each row's residual."""
        squares: Array = np.einsum("ij,ij->i", self.residual, self.residual)
        return squares


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of the latent variables of some rows: one column per row."""

    latent: Array
    """Their means, components x rows."""
    spread: Array
    """Their covariances, packed; or E zz', if second moments were requested."""
    log_likelihood: Array
    """The log-likelihood of each row, in nats."""

    def with_second_moments(self) -> Posterior:
        """The same posterior with E zz' in place of the covariances."""
        return Posterior(self.latent, self.spread + outer(self.latent), self.log_likelihood)


def slabs(shape: tuple[int, ...], order: int) -> Iterator[slice]:
    """Runs of the rows of a matrix whose small matrices stay in cache."""
    n_rows, n_cols = shape
    step = matrices_per_slab(order, n_cols)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def observe(values: Array, factors: Factors, held_out: Array | None = None) -> ObservedRows:
    """Centre the observed values that are not held out. NaN is a missing value."""
    shape = values.shape
    is_observed = np.equal(values, values, out=scratch("is_observed", shape, np.dtype(bool)))
    if factors.observed_features is not None:
        is_observed &= factors.observed_features
    if held_out is not None:
        is_observed &= ~held_out
    residual = np.subtract(values, factors.centre, out=scratch("residual", shape, _DOUBLE))
    mask = scratch("mask", shape, _DOUBLE)
    # Bitwise and with ones keeps a value; with zeros it makes it 0.0, even if it is NaN.
    keep = mask.view(np.int64)
    np.copyto(keep, is_observed)
    np.negative(keep, out=keep)
    np.bitwise_and(residual.view(np.int64), keep, out=residual.view(np.int64))
    np.copyto(mask, is_observed)
    return ObservedRows(residual, mask)


def expect(rows: ObservedRows, factors: Factors, *, second_moments: bool = False) -> Posterior:
    """The posterior of each row's latent variables, and the row's log-likelihood.

    With `second_moments`, `spread` is E zz' instead of the covariance.
    """
    k, noise = factors.order, factors.noise
    patterns, pattern = _patterns(rows.mask)
    shape = (packed_length(k), len(patterns))
    small = np.matmul(factors.products, patterns.T, out=scratch("small", shape, _DOUBLE))
    projected = (factors.loadings.T / noise) @ rows.residual.T
    if pattern is None:
        latent, explained, log_det = invert(small, projected, with_outer=second_moments)
    else:
        log_det = invert(small, np.zeros((k, len(patterns))))[2][pattern]
        small = small[:, pattern]
        latent = np.einsum("ijn,jn->in", unpacked(small, k), projected)
        explained = np.einsum("ij,ij->j", projected, latent)
        if second_moments:
            small += outer(latent)
    if factors.low_noise:
        unexplained = _unexplained(rows, factors, latent)
    else:
        unexplained = rows.squares / noise - explained
    log_likelihood = -0.5 * (rows.observed * (LN_2PI + np.log(noise)) + log_det + unexplained)
    return Posterior(latent, small, log_likelihood)


def _unexplained(rows: ObservedRows, factors: Factors, latent: Array) -> Array:
    """The sum of squares of each row that its latent variables do not explain, in units of the noise.

    It is computed as a sum of squares, without cancellation.
    """
    left = latent.T @ factors.loadings.T
    left *= rows.mask
    np.subtract(rows.residual, left, out=left)
    squares: Array = np.einsum("ij,ij->i", left, left) / factors.noise
    squares += np.einsum("ij,ij->j", latent, latent)
    return squares


def _patterns(mask: Array) -> tuple[Array, Array | None]:
    """The distinct rows of a mask and the index of each row's pattern; (mask, None) if these are too many."""
    n_rows, n_cols = mask.shape
    signature = mask @ _signature(n_cols)
    if 4 * (1 + np.count_nonzero(np.diff(np.sort(signature)))) > n_rows:
        return mask, None
    _, first, which = np.unique(signature, return_index=True, return_inverse=True)
    patterns = mask[first]
    for start in range(0, n_rows, 256):  # different patterns may have the same signature
        part = slice(start, start + 256)
        if not np.array_equal(patterns[which[part]], mask[part]):
            return mask, None
    return patterns, which


@lru_cache(maxsize=8)
def _signature(length: int) -> Array:
    return np.random.default_rng(length).random(length)
