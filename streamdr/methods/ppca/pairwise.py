"""Means and covariances of observed values, for each pair of features: the start of EM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block, widen
from streamdr.core.buffers import scratch
from streamdr.methods.ppca.holdout import Holdout

SLAB = 1024
_TINY_WEIGHT = 1e-200
"""The weight of rows of weight zero in the choice of an origin."""


class Pairwise:
    """For each pair of features, over rows where both are observed: count, sums of the first, products.

    Each feature is relative to an `origin` near its mean, exact in the data's type, so that products do not
    cancel.
    """

    kind: ClassVar[str] = "pairwise"
    allow_nan: ClassVar[bool] = True

    def __init__(self, n_cols: int, holdout: Holdout | None = None) -> None:
        self.n_cols = n_cols
        self.holdout = holdout
        self.origin = np.full(n_cols, np.nan)
        """NaN for features that were not observed yet."""
        self.pairs = np.zeros((n_cols, n_cols))
        self.sums = np.zeros((n_cols, n_cols))
        """sums[j, l] is the sum of feature j over the rows where l is observed."""
        self.products = np.zeros((n_cols, n_cols))
        self.rows = np.zeros(2)

    @property
    def counts(self) -> Array:
        """The weight of each feature's observed values."""
        return np.diag(self.pairs)

    @property
    def mean(self) -> Array:
        """Each feature's mean over its observed values; NaN where there are none."""
        return self.origin + self.offset

    @property
    def offset(self) -> Array:
        """The mean minus the origin: more accurate than the mean itself."""
        offset: Array = np.diag(self.sums) / np.where(self.counts > 0, self.counts, np.nan)
        return offset

    def covariance(self) -> Array:
        """The covariance of each pair over rows where both are observed; 0 where there are none."""
        offset = np.nan_to_num(self.offset)
        crossed = offset[:, None] * self.sums.T
        centred = self.products - crossed - crossed.T + np.outer(offset, offset) * self.pairs
        covariance: Array = centred / np.where(self.pairs > 0, self.pairs, np.inf)
        return covariance

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        for start in range(0, len(block.values), SLAB):
            slab = slice(start, start + SLAB)
            weights = None if block.weights is None else block.weights[slab]
            self._update_slab(widen(block.values[slab]), weights, block.numbers[slab])
        infinite_held_out = self.holdout is not None and np.isinf(block.values).any()
        if infinite_held_out or not np.isfinite(np.trace(self.products)):
            block.locate_nonfinite()

    def _update_slab(self, values: Array, weights: Array | None, numbers: Array) -> None:
        is_observed = values == values
        if self.holdout is not None:
            is_observed &= ~self.holdout.chosen(numbers, values)
        shape, double = values.shape, np.dtype(np.float64)
        mask = scratch("mask", shape, double)
        np.copyto(mask, is_observed)
        shares = np.ones(len(values)) if weights is None else np.maximum(weights, _TINY_WEIGHT)
        counts, total = shares @ mask, shares @ np.where(is_observed, values, 0.0)
        near = (total / np.where(counts > 0, counts, np.nan)).astype(values.dtype)
        origin = near.astype(np.float64)
        moved = np.where(is_observed, values - origin, 0.0)
        rows = np.array([len(values), np.count_nonzero(~is_observed.any(axis=1))], np.float64)
        if weights is not None:
            roots = np.sqrt(weights)[:, None]
            mask *= roots
            moved *= roots
        self._absorb(origin, mask.T @ mask, moved.T @ mask, moved.T @ moved, rows)

    def merge(self, later: Self) -> None:
        """Fold in the rows that follow."""
        self._absorb(later.origin, later.pairs, later.sums, later.products, later.rows)

    def _absorb(self, origin: Array, pairs: Array, sums: Array, products: Array, rows: Array) -> None:
        """Add sums about another origin, shifted to this one: r becomes r + shift where it is observed."""
        self.origin = np.where(np.isnan(self.origin), origin, self.origin)
        shift = np.nan_to_num(origin - self.origin)[:, None]
        crossed = shift * sums.T
        self.pairs += pairs
        self.sums += sums + shift * pairs
        self.products += products + crossed + crossed.T + shift * shift.T * pairs
        self.rows += rows

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, self.holdout)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        holdout = None if self.holdout is None else self.holdout.parameters()
        return {"n_cols": self.n_cols, "holdout": holdout}

    def value(self) -> dict[str, Array]:
        """Counts, means and covariances."""
        return {
            "rows": self.rows,
            "pairs": self.pairs,
            "mean": np.nan_to_num(self.mean),
            "covariance": self.covariance(),
        }

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {
            "origin": self.origin,
            "pairs": self.pairs,
            "sums": self.sums,
            "products": self.products,
            "rows": self.rows,
        }

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        for name in ("origin", "pairs", "sums", "products", "rows"):
            setattr(self, name, arrays[name])
