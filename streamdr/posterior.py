"""What rows with holes say of their latent variables, under x = W z + mean + noise: the E step.

With M the 0/1 mask of what was observed, R = M o (X - mean) and A_i = I + W' diag(m_i) W / s2, a row's latent
variables are normal with covariance A_i^-1 and mean A_i^-1 W' r_i / s2 (Tipping and Bishop 1999, for the
observed part of each row). The A_i of all rows are one matrix product, of M with the packed w_j w_j' / s2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from streamdr.blocks import Array, Settled
from streamdr.packed import at_once, invert, outer, packed_length, unpacked
from streamdr.scratch import scratch

_DOUBLE = np.dtype(np.float64)
LN_2PI = float(np.log(2 * np.pi))
_SHARP = 1e4
"""From this ratio of signal to noise on, squares are not subtracted: that would lose as many digits."""


@dataclass(frozen=True, eq=False)
class Factors(Settled):
    """The parameters of one probabilistic PCA. A feature that was never observed has a mean of NaN."""

    mean: Array
    loadings: Array
    """W, features x components."""
    noise: float

    @property
    def order(self) -> int:
        """How many components there are."""
        return int(self.loadings.shape[1])

    @cached_property
    def known(self) -> Array | None:
        """Which features were ever observed; None where all were."""
        known: Array = np.isfinite(self.mean)
        return None if known.all() else known

    @cached_property
    def centre(self) -> Array:
        """The mean, 0 where there is none."""
        return self.mean if self.known is None else np.where(self.known, self.mean, 0.0)

    @cached_property
    def sharp(self) -> bool:
        """Whether there is so little noise that a difference of squares would lose it."""
        return float(np.sum(self.loadings**2)) > _SHARP * self.noise * len(self.mean)

    @cached_property
    def products(self) -> Array:
        """w_j w_j' / s2 of each feature, packed: a column a feature."""
        return outer(np.ascontiguousarray(self.loadings.T) / np.sqrt(self.noise))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # what is cached stays here


@dataclass(frozen=True, eq=False)
class Seen:
    """Some rows as a model sees them."""

    residual: Array
    """X - mean where it was observed, else 0."""
    mask: Array
    """1.0 where it was observed, else 0."""

    @cached_property
    def observed(self) -> Array:
        """How many values each row has."""
        counts: Array = self.mask @ np.ones(self.mask.shape[1])
        return counts

    @cached_property
    def squares(self) -> Array:
        """The sum of squares of each row's residual."""
        squares: Array = np.einsum("ij,ij->i", self.residual, self.residual)
        return squares


@dataclass(frozen=True, eq=False)
class Posterior:
    """Where the latent variables of some rows are: a column for each row."""

    latent: Array
    """Their means, components x rows."""
    spread: Array
    """Their covariances, packed; or E zz', if that was asked for."""
    log_likelihood: Array
    """Of each row, in nats."""

    def with_second_moments(self) -> Posterior:
        """The same with E zz' in the place of the covariances."""
        return Posterior(self.latent, self.spread + outer(self.latent), self.log_likelihood)


def slabs(shape: tuple[int, ...], order: int) -> Iterator[slice]:
    """Runs of the rows of a matrix whose small matrices stay in cache."""
    n_rows, n_cols = shape
    step = at_once(order, n_cols)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def seen(values: Array, factors: Factors, hidden: Array | None = None) -> Seen:
    """Take the mean off what was observed and is not hidden; NaN stands for a hole."""
    shape = values.shape
    there = np.equal(values, values, out=scratch("there", shape, np.dtype(bool)))
    if factors.known is not None:
        there &= factors.known
    if hidden is not None:
        there &= ~hidden
    residual = np.subtract(values, factors.centre, out=scratch("residual", shape, _DOUBLE))
    mask = scratch("mask", shape, _DOUBLE)
    # A bit pattern of ones keeps a value, one of zeros makes it 0.0, be it NaN or not.
    keep = mask.view(np.int64)
    np.copyto(keep, there)
    np.negative(keep, out=keep)
    np.bitwise_and(residual.view(np.int64), keep, out=residual.view(np.int64))
    np.copyto(mask, there)
    return Seen(residual, mask)


def expect(rows: Seen, factors: Factors, *, second_moments: bool = False) -> Posterior:
    """The posterior of each row's latent variables, and the row's log-likelihood.

    With `second_moments`, their spread is E zz' instead of the covariance: about 0, not about the mean.
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
    if factors.sharp:
        unexplained = _unexplained(rows, factors, latent)
    else:
        unexplained = rows.squares / noise - explained
    log_likelihood = -0.5 * (rows.observed * (LN_2PI + np.log(noise)) + log_det + unexplained)
    return Posterior(latent, small, log_likelihood)


def _unexplained(rows: Seen, factors: Factors, latent: Array) -> Array:
    """The squares of each row less what its latent variables explain of them, in units of the noise.

    As a sum of squares: nothing cancels.
    """
    left = latent.T @ factors.loadings.T
    left *= rows.mask
    np.subtract(rows.residual, left, out=left)
    squares: Array = np.einsum("ij,ij->i", left, left) / factors.noise
    squares += np.einsum("ij,ij->j", latent, latent)
    return squares


def _patterns(mask: Array) -> tuple[Array, Array | None]:
    """The distinct rows of a mask, and which of them each row is, where that makes them much fewer."""
    n_rows, n_cols = mask.shape
    signature = mask @ _signature(n_cols)
    if 4 * (1 + np.count_nonzero(np.diff(np.sort(signature)))) > n_rows:
        return mask, None
    _, first, which = np.unique(signature, return_index=True, return_inverse=True)
    patterns = mask[first]
    for start in range(0, n_rows, 256):  # signatures may be equal by chance
        part = slice(start, start + 256)
        if not np.array_equal(patterns[which[part]], mask[part]):
            return mask, None
    return patterns, which


@lru_cache(maxsize=8)
def _signature(length: int) -> Array:
    return np.random.default_rng(length).random(length)
