"""Values that are held out of a fit, to measure how well it predicts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.methods.ppca.posterior import LN_2PI, Factors, Posterior
from streamdr.statistics.splits import mixed


@dataclass(frozen=True)
class Holdout:
    """A random subset of the values, chosen by position: the same in every pass.

    Every row keeps an observed value. Columns in `never_held_out` keep all their values, since otherwise
    all of these would be held out.
    """

    fraction: float
    seed: int
    never_held_out: tuple[int, ...] = ()

    def chosen(self, rows: Array, values: Array) -> Array:
        """The mask of held-out values of the rows with these numbers."""
        n_cols = values.shape[1]
        cell = rows.astype(np.uint64)[:, None] * np.uint64(n_cols) + np.arange(n_cols, dtype=np.uint64)
        keys = mixed(cell, self.seed)
        held = keys < np.uint64(self.fraction * 2.0**64)
        held[:, list(self.never_held_out)] = False
        is_observed = values == values
        fully_held_out = np.flatnonzero((is_observed & held).any(axis=1) & ~(is_observed & ~held).any(axis=1))
        if len(fully_held_out):  # such a row keeps the value that would be held out last
            last = np.argmax(
                np.where(is_observed[fully_held_out], keys[fully_held_out], np.uint64(0)), axis=1
            )
            held[fully_held_out, last] = False
        return held

    def parameters(self) -> list[Any]:
        """The parameters, for the ledger's key."""
        return [self.fraction, self.seed, *([list(self.never_held_out)] if self.never_held_out else [])]

    def evaluate(
        self, values: Array, held: Array, weights: Array | None, factors: Factors, posterior: Posterior
    ) -> Array:
        """Weighted sums over the held-out values: of 1, of their log-density, and of their squared errors.

        Each value is normal given the observed values of its row, with mean w_j'z + mean_j and variance
        s2 (1 + w_j' A^-1 w_j).
        """
        error = values - (posterior.latent.T @ factors.loadings.T + factors.centre)
        latent_variance = posterior.spread.T @ doubled(factors.products)
        variance = factors.noise * (1.0 + latent_variance)
        evaluated = held & (values == values)
        if factors.observed_features is not None:
            evaluated &= factors.observed_features
        weight = (
            np.ones(np.count_nonzero(evaluated)) if weights is None else weights[np.nonzero(evaluated)[0]]
        )
        error, variance = error[evaluated], variance[evaluated]
        squares = error**2
        density = -0.5 * (LN_2PI + np.log(variance) + squares / variance)
        return np.array([weight.sum(), weight @ density, weight @ squares])


def doubled(packed: Array) -> Array:
    """Packed matrices with doubled off-diagonal entries: w'A w is then a product of two packed matrices."""
    order = int((np.sqrt(8 * len(packed) + 1) - 1) / 2)
    factor = np.full(len(packed), 2.0)
    factor[np.cumsum(np.arange(1, order + 1)) - 1] = 1.0
    twice: Array = packed * factor[:, None]
    return twice
