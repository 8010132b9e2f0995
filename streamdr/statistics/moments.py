"""Mean and scatter matrix in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import SPARSE_PIECE, Array, Block, SparseBlock, SparseRows
from streamdr.core.buffers import scratch
from streamdr.core.linalg import add_symmetric
from streamdr.statistics.centring import Centre, shifted
from streamdr.statistics.sparse_products import panel_bytes, products_of
from streamdr.statistics.sparse_rows import MOST_SUMMED, dense_blocks, is_mostly_filled, shifted_sparse


class Moments:
    """Count, weight, mean and centred scatter, sum_i w_i (x_i - mean)(x_i - mean)'.

    Products are taken in the block's own precision (`double` forces float64) after centring, and summed
    in float64: float32 data with a mean of 1e5 standard deviations keeps seven digits of its covariance.
    """

    kind: ClassVar[str] = "moments"
    allow_nan: ClassVar[bool] = False

    def __init__(self, n_cols: int, *, double: bool = False) -> None:
        self.n_cols = n_cols
        self.double = double
        self.centre = Centre(n_cols)
        self.scatter = np.zeros((n_cols, n_cols))

    @property
    def count(self) -> int:
        """The number of rows of positive weight."""
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
        # np.matmul detects the symmetric product, uses syrk and releases the GIL.
        np.matmul(rows.values.T, rows.values, out=product)
        self._absorb(rows.centre, product, about_origin=True)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        if is_mostly_filled(block):
            for dense in dense_blocks(block, panel_bytes(self.n_cols)):
                self.update(dense)
            return
        for rows in shifted_sparse(
            block, double=self.double, most_values=SPARSE_PIECE, most_rows=MOST_SUMMED
        ):
            self._absorb(rows.centre, products_of(rows.values), about_origin=True)

    def merge(self, later: Self) -> None:
        """Fold in the moments of the rows that follow."""
        self._absorb(later.centre, later.scatter, about_origin=False)

    def _absorb(self, centre: Centre, scatter: Array | SparseRows, *, about_origin: bool) -> None:
        """Add the moments of more rows."""
        corrections = self.centre.absorb(centre, moments_about_origin=about_origin)
        add_symmetric(self.scatter, scatter, *corrections)

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"n_cols": self.n_cols, "double": self.double}

    def value(self) -> dict[str, Array]:
        """Count, weight, mean and scatter."""
        return {**self.centre.value(), "scatter": self.scatter}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {**self.centre.arrays(), "scatter": self.scatter}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.centre.restore(arrays)
        self.scatter = arrays["scatter"]
