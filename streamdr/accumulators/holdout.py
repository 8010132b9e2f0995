"""Values that are hidden from a fit, to see how well it tells what it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdr.blocks import Array
from streamdr.posterior import LN_2PI, Factors, Posterior


@dataclass(frozen=True)
class Holdout:
    """A part of all values, chosen by where they stand: the same ones in every pass, however it is cut.

    No row is left without a value, nor is any column that is `spared`: those that would be left with none.
    """

    fraction: float
    seed: int
    spared: tuple[int, ...] = ()

    def chosen(self, rows: Array, values: Array) -> Array:
        """Which of the values of the rows with these numbers are held out."""
        n_cols = values.shape[1]
        cell = rows.astype(np.uint64)[:, None] * np.uint64(n_cols) + np.arange(n_cols, dtype=np.uint64)
        lots = mixed(cell, self.seed)
        held = lots < np.uint64(self.fraction * 2.0**64)
        held[:, list(self.spared)] = False
        there = values == values
        bare = np.flatnonzero((there & held).any(axis=1) & ~(there & ~held).any(axis=1))
        if len(bare):  # such a row keeps the value that would be held out last
            last = np.argmax(np.where(there[bare], lots[bare], np.uint64(0)), axis=1)
            held[bare, last] = False
        return held

    def parameters(self) -> list[Any]:
        """What tells two of them apart."""
        return [self.fraction, self.seed, *([list(self.spared)] if self.spared else [])]

    def judged(
        self, values: Array, held: Array, weights: Array | None, factors: Factors, posterior: Posterior
    ) -> Array:
        """The weight of the values that were held out, of their log-density, and of their squared errors.

        Each is normal given what was observed of its row, with mean w_j'z + mean_j and variance
        s2 (1 + w_j' A^-1 w_j).
        """
        error = values - (posterior.latent.T @ factors.loadings.T + factors.centre)
        spread = posterior.spread.T @ doubled(factors.products)
        variance = factors.noise * (1.0 + spread)
        there = held & (values == values)
        if factors.known is not None:
            there &= factors.known
        weight = np.ones(np.count_nonzero(there)) if weights is None else weights[np.nonzero(there)[0]]
        error, variance = error[there], variance[there]
        squares = error**2
        density = -0.5 * (LN_2PI + np.log(variance) + squares / variance)
        return np.array([weight.sum(), weight @ density, weight @ squares])


def doubled(packed: Array) -> Array:
    """Packed matrices, what is off the diagonal counted twice: so that w'A w is a product of two packed."""
    order = int((np.sqrt(8 * len(packed) + 1) - 1) / 2)
    factor = np.full(len(packed), 2.0)
    factor[np.cumsum(np.arange(1, order + 1)) - 1] = 1.0
    twice: Array = packed * factor[:, None]
    return twice


def mixed(numbers: Array, seed: int) -> Array:
    """Each number's own random 64 bits (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    bits = numbers + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_bits: Array = bits ^ (bits >> np.uint64(31))
    return mixed_bits
