"""Counts of held-out and remaining observed values of each column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block
from streamdr.methods.ppca.holdout import Holdout

SLAB = 64


class ObservedCounts:
    """For each column, the observed values in rows of positive weight: held out, and remaining."""

    kind: ClassVar[str] = "visible"
    allow_nan: ClassVar[bool] = True

    def __init__(self, n_cols: int, holdout: Holdout) -> None:
        self.n_cols = n_cols
        self.holdout = holdout
        self.counts = np.zeros((2, n_cols), np.int64)

    @property
    def fully_held_out(self) -> tuple[int, ...]:
        """The columns whose values are all held out."""
        held, left = self.counts
        return tuple(int(column) for column in np.flatnonzero((held > 0) & (left == 0)))

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        for start in range(0, len(block.values), SLAB):
            slab = slice(start, start + SLAB)
            values = block.values[slab]
            if np.isinf(values).any():
                block.locate_nonfinite()
            held, is_observed = self.holdout.chosen(block.numbers[slab], values), values == values
            if block.weights is not None:
                is_observed &= block.weights[slab, None] > 0
            self.counts += np.stack([(is_observed & held).sum(axis=0), (is_observed & ~held).sum(axis=0)])

    def merge(self, later: Self) -> None:
        """Fold in the rows that follow."""
        self.counts += later.counts

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, self.holdout)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"n_cols": self.n_cols, "holdout": self.holdout.parameters()}

    def value(self) -> dict[str, Array]:
        """The counts."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"counts": self.counts}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.counts = arrays["counts"]
