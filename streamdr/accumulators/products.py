"""The covariance times a few vectors in one pass, without the covariance: for data large both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.accumulators.centred import Centre, shifted
from streamdr.blocks import Array, Block, Settled, settled
from streamdr.linalg import column_squares


class Products(Settled):
    """Mean, centred sum of squares of each column, and S Q for S the scatter and Q a thin basis.

    `squares=False` leaves the sums of squares out, when an earlier pass has them: they cost a look at
    every value.
    """

    kind: ClassVar[str] = "products"
    holes: ClassVar[bool] = False

    def __init__(self, basis: Array, *, squares: bool = True, double: bool = False) -> None:
        self.basis = settled(basis)
        self.double = double
        self.centre = Centre(len(basis))
        self.squares = np.zeros(len(basis)) if squares else None
        self.images = np.zeros(basis.shape[::-1])
        """(S Q)': BLAS is faster at thin products that lie down."""

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

    def merge(self, later: Self) -> None:
        """Fold in the products of the rows that follow."""
        self._absorb(later.centre, later.images, later.squares, about_origin=False)

    def _absorb(self, centre: Centre, images: Array, squares: Array | None, *, about_origin: bool) -> None:
        vectors, coefficients = self.centre.absorb(centre, moments_about_origin=about_origin)
        self.images += images
        self.images += (vectors @ self.basis).T @ (vectors * coefficients[:, None])
        if self.squares is not None:
            assert squares is not None  # accumulators of unlike parameters never meet
            self.squares += squares
            self.squares += coefficients @ vectors**2

    def empty_like(self) -> Self:
        """A fresh one for the same basis."""
        return type(self)(self.basis, squares=self.squares is not None, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {"basis": self.basis, "squares": self.squares is not None, "double": self.double}

    def value(self) -> dict[str, Array]:
        """Count, weight, mean, squares and products."""
        return {**self.centre.value(), **self._squares(), "products": self.products}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {**self.centre.arrays(), **self._squares(), "images": self.images}

    def _squares(self) -> dict[str, Array]:
        return {} if self.squares is None else {"squares": self.squares}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.centre.restore(arrays)
        self.squares = arrays.get("squares")
        self.images = arrays["images"]
