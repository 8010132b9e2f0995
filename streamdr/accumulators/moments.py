"""Mean and scatter matrix in one pass: all that any linear method needs to know about tall data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.accumulators.centred import Centre, shifted
from streamdr.blocks import Array, Block
from streamdr.linalg import add_symmetric
from streamdr.scratch import scratch


class Moments:
    """Count, weight, mean and centred scatter, sum_i w_i (x_i - mean)(x_i - mean)'.

    Products are taken in the block's own precision (`double` forces float64) after centring, and summed
    in float64: data of mean 1e5 standard deviations in float32 keep seven digits of their covariance.
    """

    kind: ClassVar[str] = "moments"
    holes: ClassVar[bool] = False

    def __init__(self, n_cols: int, *, double: bool = False) -> None:
        self.n_cols = n_cols
        self.double = double
        self.centre = Centre(n_cols)
        self.scatter = np.zeros((n_cols, n_cols))

    @property
    def count(self) -> int:
        """Rows that have any weight."""
        return self.centre.count

    @property
    def weight(self) -> float:
        """The sum of the rows' weights."""
        return self.centre.weight

    @property
    def mean(self) -> Array:
        """The weighted mean of the rows."""
        return self.centre.mean

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if len(block.values) == 0:
            return
        rows = shifted(block, double=self.double)
        product = scratch("product", self.scatter.shape, rows.values.dtype)
        # np.matmul sees that the product is symmetric, uses syrk and lets other threads run.
        np.matmul(rows.values.T, rows.values, out=product)
        self._absorb(rows.centre, product, about_origin=True)

    def merge(self, later: Self) -> None:
        """Fold in the moments of the rows that follow."""
        self._absorb(later.centre, later.scatter, about_origin=False)

    def _absorb(self, centre: Centre, scatter: Array, *, about_origin: bool) -> None:
        corrections = self.centre.absorb(centre, moments_about_origin=about_origin)
        add_symmetric(self.scatter, scatter, *corrections)

    def empty_like(self) -> Self:
        """A fresh one for the same columns."""
        return type(self)(self.n_cols, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {"n_cols": self.n_cols, "double": self.double}

    def value(self) -> dict[str, Array]:
        """Count, weight, mean and scatter."""
        return {**self.centre.value(), "scatter": self.scatter}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {**self.centre.arrays(), "scatter": self.scatter}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.centre.restore(arrays)
        self.scatter = arrays["scatter"]
