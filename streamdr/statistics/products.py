"""The covariance times a few vectors in one pass, for data with many rows and many columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, Span, SparseBlock, aligned, widen
from streamdr.core.buffers import output_buffer
from streamdr.core.linalg import mean_of_few, shift_rows
from streamdr.statistics.centring import Centre
from streamdr.statistics.sparse_rows import shifted_sparse, thin_rows, thin_values

_SHIFT_STEP = 4
_TILE_ROWS, _TILE_COLUMNS = 256, 4096
"""A block is shifted and multiplied a tile of this size at a time, while it is in cache."""


class Products(AlignedArrays):
    """Mean, centred sum of squares of each column, and S Q for S the scatter and Q a thin basis.

    `squares=False` leaves the sums of squares out, when an earlier pass has them.
    """

    kind: ClassVar[str] = "products"
    allow_nan: ClassVar[bool] = False

    def __init__(self, basis: Array, *, squares: bool = True, double: bool = False) -> None:
        self.basis = aligned(basis)
        self.double = double
        self.centre = Centre(len(basis))
        self.squares = np.zeros(len(basis)) if squares else None
        self.images = np.zeros(basis.shape[::-1])
        """(S Q)': BLAS is faster at thin products in this orientation."""

    @property
    def products(self) -> Array:
        """S Q."""
        return self.images.T

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if len(block.values) == 0:
            return
        values = widen(block.values)
        if self.double:
            values = values.astype(np.float64, copy=False)
        n_rows, n_cols = values.shape
        weights = np.ones(n_rows) if block.weights is None else block.weights
        # A few rows are enough for a shift: what remains of the mean is small beside the deviations.
        few = shift_rows(n_rows, block.weights)[::_SHIFT_STEP]
        shift, basis = mean_of_few(values[few]), self.basis.astype(values.dtype, copy=False)
        moved = output_buffer(values, block)
        sums, squares = np.zeros(n_cols), None if self.squares is None else np.zeros(n_cols)
        for rows in (span.slice for span in Span(0, n_rows).split(_TILE_ROWS)):
            scores = np.zeros((len(moved[rows]), basis.shape[1]), values.dtype)
            for columns in _tiles(n_cols):
                tile = np.subtract(values[rows, columns], shift[columns], out=moved[rows, columns])
                sums[columns] += weights[rows].astype(tile.dtype) @ tile
                if block.weights is not None:
                    tile *= np.sqrt(weights[rows]).astype(tile.dtype)[:, None]
                if squares is not None:
                    squares[columns] += np.einsum("ij,ij->j", tile, tile)
                scores += tile @ basis[columns]
            thin = aligned(scores.T)
            for columns in _tiles(n_cols):
                self.images[:, columns] += thin @ moved[rows, columns]
        if not np.isfinite(sums).all():
            block.locate_nonfinite()
        weight, count = float(weights.sum()), int(np.count_nonzero(weights))
        centre = Centre(n_cols, count, weight, shift.astype(np.float64), sums / (weight or 1.0))
        self._absorb(centre, squares, about_origin=True)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        most_values, most_rows = thin_values(len(self.basis)), thin_rows(*self.basis.shape)
        for rows in shifted_sparse(block, double=self.double, most_values=most_values, most_rows=most_rows):
            squares = None if self.squares is None else rows.centred_squares()
            self.images += rows.centred_images(self.basis)
            self._absorb(rows.centre, squares, about_origin=False)

    def merge(self, later: Self) -> None:
        """Fold in the products of the rows that follow."""
        self.images += later.images
        self._absorb(later.centre, later.squares, about_origin=False)

    def _absorb(self, centre: Centre, squares: Array | None, *, about_origin: bool) -> None:
        """Add the squares of more rows, whose products are added, and correct for the change of the mean."""
        vectors, coefficients = self.centre.absorb(centre, moments_about_origin=about_origin)
        scores: Array = (vectors @ self.basis).T
        weighted: Array = vectors * coefficients[:, None]
        for columns in _tiles(len(self.basis)):
            self.images[:, columns] += scores @ weighted[:, columns]
        if self.squares is not None:
            assert squares is not None  # accumulators with different parameters are never merged
            self.squares += squares
            self.squares += coefficients @ vectors**2

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.basis, squares=self.squares is not None, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        given = {"basis": self.basis, "squares": self.squares is not None, "double": self.double}
        return given | {"tile": (_TILE_ROWS, _TILE_COLUMNS)}

    def value(self) -> dict[str, Array]:
        """Count, weight, mean, squares and products."""
        return {**self.centre.value(), **self._squares(), "products": self.products}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {**self.centre.arrays(), **self._squares(), "images": self.images}

    def _squares(self) -> dict[str, Array]:
        """The sums of squares, unless they are left out."""
        return {} if self.squares is None else {"squares": self.squares}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.centre.restore(arrays)
        self.squares = arrays.get("squares")
        self.images = arrays["images"]


def _tiles(n_cols: int) -> Iterator[slice]:
    """Yield the columns of each tile."""
    return (span.slice for span in Span(0, n_cols).split(_TILE_COLUMNS))
