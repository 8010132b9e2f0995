"""Mean and scatter of columns together with a numeric target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import SPARSE_PIECE, Array, Block, SparseBlock
from streamdr.core.buffers import scratch
from streamdr.core.linalg import column_squares, shift_near_mean, slabs
from streamdr.statistics.centring import Centre, Shifted, shifted
from streamdr.statistics.moments import Moments
from streamdr.statistics.sparse_products import panel_bytes, products_of
from streamdr.statistics.sparse_rows import (
    MOST_SUMMED,
    ShiftedSparse,
    dense_blocks,
    is_mostly_filled,
    shifted_sparse,
)


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

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        if is_mostly_filled(block):
            for dense in dense_blocks(block, panel_bytes(self.n_cols)):
                self.update(dense)
            return
        for rows, target, centre in _with_sparse_target(block, double=self.double):
            features = products_of(rows.values)
            product = scratch("joint product", self.scatter.shape, np.dtype(np.float64))
            product[:-1, :-1] = features if isinstance(features, np.ndarray) else features.toarray()
            product[-1, :-1] = product[:-1, -1] = rows.values.T @ target
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

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        for rows, target, centre in _with_sparse_target(block, double=self.double):
            squares = np.append(rows.column_squares(), target @ target)
            self._absorb(centre, squares, rows.values.T @ target, about_origin=True)

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
    assert block.labels is not None  # methods that need labels are never run without them
    rows = shifted(block, double=double)
    return rows, *_beside_target(rows.centre, block.labels, block.weights)


def _with_sparse_target(block: SparseBlock, *, double: bool) -> Iterator[tuple[ShiftedSparse, Array, Centre]]:
    """The same for runs of sparse rows."""
    assert block.labels is not None  # methods that need labels are never run without them
    start = 0
    for rows in shifted_sparse(block, double=double, most_values=SPARSE_PIECE, most_rows=MOST_SUMMED):
        here = slice(start, start + rows.values.shape[0])
        weights = None if block.weights is None else block.weights[here]
        yield rows, *_beside_target(rows.centre, block.labels[here], weights)
        start = here.stop


def _beside_target(own: Centre, labels: Array, weights: Array | None) -> tuple[Array, Centre]:
    """The shifted target, times the root weights, and its centre beside that of the rows."""
    shift = shift_near_mean(labels[:, None], weights)
    target = labels - shift[0]
    offset = (target.sum() if weights is None else weights @ target) / (own.weight or 1.0)
    if weights is not None:
        target *= np.sqrt(weights)
    origin, offsets = np.append(own.origin, shift), np.append(own.offset, offset)
    return target, Centre(own.n_cols + 1, own.count, own.weight, origin, offsets)


def _products(values: Array, target: Array) -> Array:
    """Sums of each column times the target, in double precision over slabs summed in the values' own."""
    total, factors = np.zeros(values.shape[1]), target.astype(values.dtype)
    for slab in slabs(values):
        total += factors[slab] @ values[slab]
    return total
