"""How often each column is observed, and its mean and variance, where values may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block, SparseBlock
from streamdr.core.linalg import slabs
from streamdr.statistics.centring import joined

_NEARLY_FULL = 0.75
"""The share of stored values in a block from which a column is summed as a dense one."""


class Observed:
    """The weight of the rows that observe each column; with `moments`, also its mean and squares about it.

    A row of weight 2 counts like two equal rows. Sums are taken about the first observed value of the column,
    in double precision, and merge by Chan's formula. Those of a block of sparse rows are taken about zero,
    where nothing cancels while many values are zero; columns that are nearly full are summed as dense ones.
    """

    kind: ClassVar[str] = "observed"
    allow_nan: ClassVar[bool] = True

    def __init__(self, n_cols: int, *, moments: bool = False) -> None:
        self.n_cols = n_cols
        self.moments = moments
        self.total = 0.0
        """The weight of all rows."""
        self.weights = np.zeros(n_cols)
        self.origin, self.offset, self.squares = (np.zeros(n_cols if moments else 0) for _ in range(3))

    @property
    def share(self) -> Array:
        """The share of the rows that observe each column, by weight."""
        return self.weights / (self.total or 1.0)

    @property
    def mean(self) -> Array:
        """The mean of the observed values of each column; 0 where there are none."""
        return self.origin + self.offset

    @property
    def variance(self) -> Array:
        """The variance of the observed values of each column, over their weight; 0 where there are none."""
        return self.squares / np.where(self.weights > 0, self.weights, 1.0)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        rows = np.ones(len(block.values)) if block.weights is None else block.weights
        for slab in slabs(block.values):
            self._join(self._summed(block, block.values[slab], rows[slab]))

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        rows = np.ones(block.values.shape[0]) if block.weights is None else block.weights
        few = self._summed_sparse(block, rows)
        if self.moments:
            stored = np.bincount(block.values.indices, minlength=self.n_cols)
            full = np.flatnonzero(stored > _NEARLY_FULL * len(rows))
            if len(full):
                columns = block.values[:, full].toarray()
                dense = type(self)(len(full), moments=True)
                for slab in slabs(columns):
                    dense._join(dense._summed(block, columns[slab], rows[slab]))
                few.weights[full], few.squares[full] = dense.weights, dense.squares
                few.origin[full], few.offset[full] = dense.origin, dense.offset
        self._join(few)

    def _summed_sparse(self, block: SparseBlock, rows: Array) -> Self:
        """Return the statistics of sparse rows, with sums about zero."""
        stored, few = block.values, self.empty_like()
        values = self._taken(stored.data)
        if np.isinf(values).any():
            block.locate_nonfinite()
        few.total = float(rows.sum())
        weights = np.repeat(rows, np.diff(stored.indptr))
        missing = np.isnan(values)
        gone, places = weights * missing, stored.indices
        left: Array = few.total - np.bincount(places, gone, self.n_cols)
        few.weights = left
        observed = np.count_nonzero(rows > 0) - np.bincount(places, gone > 0, self.n_cols)
        few.weights[observed == 0] = 0.0  # without the rounding of the difference
        if not self.moments:
            return few
        values = np.where(missing, 0.0, values).astype(np.float64)
        divisors = np.where(few.weights > 0, few.weights, 1.0)
        few.offset = np.bincount(places, weights * values, self.n_cols) / divisors
        squares = np.bincount(places, weights * np.square(values), self.n_cols)
        few.squares = np.maximum(squares - divisors * few.offset**2, 0.0)
        return few

    def _taken(self, values: Array) -> Array:
        """Return the values whose statistics are taken."""
        return values

    def _summed(self, block: Block | SparseBlock, values: Array, rows: Array) -> Self:
        """Return the statistics of a few rows."""
        few, values = self.empty_like(), self._taken(values)
        few.total = float(rows.sum())
        if np.isinf(values).any():
            block.locate_nonfinite()
        observed = ~np.isnan(values)
        few.weights = rows @ observed
        if not self.moments:
            return few
        first = (observed & (rows > 0)[:, None]).argmax(axis=0)
        origin = values[first, np.arange(self.n_cols)].astype(np.float64)
        few.origin = np.where(few.weights > 0, origin, 0.0)
        moved = np.where(observed, values - few.origin, 0.0)
        sums, squares = rows @ moved, rows @ np.square(moved)
        weights = np.where(few.weights > 0, few.weights, 1.0)
        few.offset = sums / weights
        few.squares = np.maximum(squares - weights * few.offset**2, 0.0)
        return few

    def merge(self, later: Self) -> None:
        """Fold in the rows that follow."""
        self._join(later)

    def _join(self, later: Self) -> None:
        self.total += later.total
        if self.moments:
            some = later.weights > 0
            pair = [(one.weights[some], one.origin[some], one.offset[some]) for one in (self, later)]
            both = joined(*pair[0], *pair[1])
            self.origin[some], self.offset[some] = both.origin, both.offset
            self.squares[some] += later.squares[some] + both.between * both.delta**2
        self.weights = self.weights + later.weights

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, moments=self.moments)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"n_cols": self.n_cols, "moments": self.moments}

    def value(self) -> dict[str, Array]:
        """The shares, and mean and variance where they were requested."""
        shares = {"share": self.share}
        return {**shares, "mean": self.mean, "variance": self.variance} if self.moments else shares

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        counts = {"total": np.array(self.total), "weights": self.weights}
        return {**counts, "origin": self.origin, "offset": self.offset, "squares": self.squares}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.total, self.weights = float(arrays["total"]), arrays["weights"]
        self.origin, self.offset = arrays["origin"], arrays["offset"]
        self.squares = arrays["squares"]
