"""The covariance times a few vectors in one pass, for data with many rows and many columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, SparseBlock, aligned
from streamdr.core.linalg import column_squares
from streamdr.statistics.centring import Centre, shifted
from streamdr.statistics.sparse_rows import shifted_sparse, thin_rows, thin_values


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
        rows = shifted(block, double=self.double)
        scores = rows.values @ self.basis.astype(rows.values.dtype, copy=False)
        squares = None if self.squares is None else column_squares(rows.values)
        self._absorb(rows.centre, scores.T @ rows.values, squares, about_origin=True)

    def update_sparse(self, block: SparseBlock) -> None:
        """Fold one block of sparse rows in."""
        most_values, most_rows = thin_values(len(self.basis)), thin_rows(*self.basis.shape)
        for rows in shifted_sparse(block, double=self.double, most_values=most_values, most_rows=most_rows):
            squares = None if self.squares is None else rows.centred_squares()
            self._absorb(rows.centre, rows.centred_images(self.basis), squares, about_origin=False)

    def merge(self, later: Self) -> None:
        """Fold in the products of the rows that follow."""
        self._absorb(later.centre, later.images, later.squares, about_origin=False)

    def _absorb(self, centre: Centre, images: Array, squares: Array | None, *, about_origin: bool) -> None:
        """Add the products of more rows."""
        vectors, coefficients = self.centre.absorb(centre, moments_about_origin=about_origin)
        self.images += images
        self.images += (vectors @ self.basis).T @ (vectors * coefficients[:, None])
        if self.squares is not None:
            assert squares is not None  # accumulators with different parameters are never merged
            self.squares += squares
            self.squares += coefficients @ vectors**2

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.basis, squares=self.squares is not None, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {"basis": self.basis, "squares": self.squares is not None, "double": self.double}

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
