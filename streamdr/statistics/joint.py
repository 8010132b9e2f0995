"""Mean and scatter of columns together with a numeric target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, Block
from streamdr.core.buffers import scratch
from streamdr.core.linalg import column_squares, shift_near_mean, slabs
from streamdr.statistics.centring import Centre, Shifted, shifted
from streamdr.statistics.moments import Moments


class JointMoments(Moments):
    """Moments of the columns and of the labels, which are the last column.

    The target is centred in double precision before it is multiplied in the block's own.
    """

    kind: ClassVar[str] = "joint_moments"

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if len(block.values) == 0:
            return
        rows, target, centre = _with_target(block, double=self.double)
        features = scratch("product", (self.n_cols - 1, self.n_cols - 1), rows.values.dtype)
        np.matmul(rows.values.T, rows.values, out=features)
        product = scratch("joint product", self.scatter.shape, np.dtype(np.float64))
        product[:-1, :-1] = features
        product[-1, :-1] = product[:-1, -1] = _products(rows.values, target)
        product[-1, -1] = target @ target
        self._absorb(centre, product, about_origin=True)


class JointSums:
    """For each column: mean, sum of squares about it, and sum of products with a numeric target."""

    kind: ClassVar[str] = "joint_sums"
    allow_nan: ClassVar[bool] = False

    def __init__(self, n_cols: int, *, double: bool = False) -> None:
        self.n_cols = n_cols
        self.double = double
        self.centre = Centre(n_cols + 1)
        """The centre of the columns and, as the last, of the target."""
        self.squares = np.zeros(n_cols + 1)
        self.products = np.zeros(n_cols)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if len(block.values) == 0:
            return
        rows, target, centre = _with_target(block, double=self.double)
        squares = np.append(column_squares(rows.values), target @ target)
        self._absorb(centre, squares, _products(rows.values, target), about_origin=True)

    def merge(self, later: Self) -> None:
        """Fold in the sums of the rows that follow."""
        self._absorb(later.centre, later.squares, later.products, about_origin=False)

    def _absorb(self, centre: Centre, squares: Array, products: Array, *, about_origin: bool) -> None:
        """Add the sums of more rows."""
        vectors, coefficients = self.centre.absorb(centre, moments_about_origin=about_origin)
        self.squares = self.squares + squares + coefficients @ vectors**2
        self.products = self.products + products + (coefficients * vectors[:, -1]) @ vectors[:, :-1]

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.n_cols, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"n_cols": self.n_cols, "double": self.double}

    def value(self) -> dict[str, Array]:
        """Count, weight, means, and sums of squares and of products about the means."""
        return {**self.centre.value(), "sums": np.append(self.squares, self.products)}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {**self.centre.arrays(), "squares": self.squares, "products": self.products}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.centre.restore(arrays)
        self.squares, self.products = arrays["squares"], arrays["products"]


def _with_target(block: Block, *, double: bool) -> tuple[Shifted, Array, Centre]:
    """The shifted rows and target, times their root weights, and the centre of both."""
    labels = block.labels
    assert labels is not None  # methods that need labels are never run without them
    rows = shifted(block, double=double)
    shift = shift_near_mean(labels[:, None], block.weights)
    target = labels - shift[0]
    weights = block.weights
    offset = (target.sum() if weights is None else weights @ target) / (rows.centre.weight or 1.0)
    if weights is not None:
        target *= np.sqrt(weights)
    own = rows.centre
    origin, offsets = np.append(own.origin, shift), np.append(own.offset, offset)
    return rows, target, Centre(own.n_cols + 1, own.count, own.weight, origin, offsets)


def _products(values: Array, target: Array) -> Array:
    """Sums of each column times the target, in double precision over slabs summed in the values' own."""
    total, factors = np.zeros(values.shape[1]), target.astype(values.dtype)
    for slab in slabs(values):
        total += factors[slab] @ values[slab]
    return total
