"""The covariance times a few vectors in one pass, without the covariance: for data large both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.accumulators.centred import Centre, shifted
from streamdr.blocks import Array, Block
from streamdr.linalg import column_squares


class Products:
    """Mean, centred sum of squares of each column, and S Q for S the scatter and Q a thin basis."""

    kind: ClassVar[str] = "products"

    def __init__(self, basis: Array, *, double: bool = False) -> None:
        self.basis = basis
        self.double = double
        self.centre = Centre(len(basis))
        self.squares = np.zeros(len(basis))
        self.products = np.zeros(basis.shape)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        if len(block.values) == 0:
            return
        rows = shifted(block, double=self.double)
        scores = rows.values @ self.basis.astype(rows.values.dtype, copy=False)
        products = rows.values.T @ scores
        self._absorb(rows.centre, products, column_squares(rows.values), about_origin=True)

    def merge(self, later: Self) -> None:
        """Fold in the products of the rows that follow."""
        self._absorb(later.centre, later.products, later.squares, about_origin=False)

    def _absorb(self, centre: Centre, products: Array, squares: Array, *, about_origin: bool) -> None:
        vectors, coefficients = self.centre.absorb(centre, moments_about_origin=about_origin)
        self.products += products
        self.products += (vectors * coefficients[:, None]).T @ (vectors @ self.basis)
        self.squares += squares
        self.squares += coefficients @ vectors**2

    def empty_like(self) -> Self:
        """A fresh one for the same basis."""
        return type(self)(self.basis, double=self.double)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {"basis": self.basis, "double": self.double}

    def value(self) -> dict[str, Array]:
        """Count, weight, mean, squares and products."""
        return {**self.centre.value(), "squares": self.squares, "products": self.products}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {**self.centre.arrays(), "squares": self.squares, "products": self.products}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.centre.restore(arrays)
        self.squares = arrays["squares"]
        self.products = arrays["products"]
