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

from streamdr.core import kernels
from streamdr.core.blocks import AlignedArrays, Array, widen
from streamdr.core.buffers import scratch
from streamdr.methods.ppca.small_matrices import invert, matrices_per_slab, outer, packed_length, unpacked

_DOUBLE = np.dtype(np.float64)
LN_2PI = float(np.log(2 * np.pi))
_LOW_NOISE_RATIO = 1e4
"""The ratio of signal to noise above which squares are not subtracted, to avoid cancellation."""
PADDING = 8
"""The numbers between the ends of rows and the beginnings of the next ones: a line of the cache."""


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
    """The posterior of the latent variables of some rows: one column per row.

    It is valid until this thread computes another one.
    """

    order: int
    """The number of latent variables."""
    moments: Array
    """Their covariances, packed (E zz', if second moments were requested), their means, and ones."""
    log_likelihood: Array
    """The log-likelihood of each row, in nats."""

    @property
    def spread(self) -> Array:
        """The covariances of the latent variables, packed; or E zz'."""
        return self.moments[: packed_length(self.order)]

    @property
    def latent(self) -> Array:
        """The means of the latent variables, components x rows."""
        return self.moments[packed_length(self.order) : -1]

    def add_second_moments(self) -> None:
        """Replace the covariances by E zz'."""
        spread = self.spread
        spread += outer(self.latent)


def slabs(shape: tuple[int, ...], order: int) -> Iterator[slice]:
    """Runs of the rows of a matrix whose small matrices stay in cache."""
    n_rows, n_cols = shape
    step = matrices_per_slab(order, n_cols)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def observe(values: Array, factors: Factors, held_out: Array | None = None) -> ObservedRows:
    """Centre the observed values that are not held out. NaN is a missing value."""
    residual = scratch("residual", values.shape, _DOUBLE)
    mask = scratch("mask", values.shape, _DOUBLE)
    centre_observed = observe_with_numpy if kernels.compiled is None else kernels.compiled.observe
    centre_observed(np.ascontiguousarray(widen(values)), factors.centre[None], residual, mask)
    if factors.observed_features is not None:
        residual[:, ~factors.observed_features] = mask[:, ~factors.observed_features] = 0.0
    if held_out is not None:
        residual[held_out] = mask[held_out] = 0.0
    return ObservedRows(residual, mask)


def observe_with_numpy(values: Array, centre: Array, residual: Array, mask: Array) -> None:
    """Write the values minus the centre, and 1; or 0 and 0 where they are NaN."""
    np.equal(values, values, out=mask)
    np.subtract(values, centre, out=residual)
    # Bitwise and with ones keeps a value; with zeros it makes it 0.0, even if it is NaN.
    keep = scratch("keep", values.shape, np.dtype(np.int64))
    np.negative(mask, out=keep, casting="unsafe")
    np.bitwise_and(residual.view(np.int64), keep, out=residual.view(np.int64))


def expect(rows: ObservedRows, factors: Factors, *, second_moments: bool = False) -> Posterior:
    """The posterior of each row's latent variables, and the row's log-likelihood.

    With `second_moments`, `spread` is E zz' instead of the covariance.
    """
    k, noise, number = factors.order, factors.noise, len(rows.mask)
    patterns, pattern = _patterns(rows.mask)
    p = packed_length(k)
    # Rows at a distance of a power of two would compete for the same places of a cache.
    moments = scratch("moments", (p + k + 1, number + PADDING), _DOUBLE)[:, :number]
    small, latent = moments[:p], moments[p:-1]
    moments[-1] = 1.0
    projected = np.matmul(
        factors.loadings.T / noise, rows.residual.T, out=scratch("projected", (k, number), _DOUBLE)
    )
    if pattern is None:
        np.matmul(factors.products, patterns.T, out=small)
        explained, log_det = invert(small, projected, latent, with_outer=second_moments)
    else:
        distinct = factors.products @ patterns.T
        nothing = np.zeros((k, len(patterns)))
        log_det = invert(distinct, nothing, np.empty_like(nothing))[1][pattern]
        np.take(distinct, pattern, axis=1, out=small, mode="clip")
        np.einsum("ijn,jn->in", unpacked(small, k), projected, out=latent)
        explained = np.einsum("ij,ij->j", projected, latent)
        if second_moments:
            small += outer(latent)
    if factors.low_noise:
        unexplained = _unexplained(rows, factors, latent)
    else:
        unexplained = rows.squares / noise - explained
    log_likelihood = -0.5 * (rows.observed * (LN_2PI + np.log(noise)) + log_det + unexplained)
    return Posterior(k, moments, log_likelihood)


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
