"""The matrix of squared distances times a few vectors, for iterative eigensolvers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, Block, aligned
from streamdr.methods.mds.distances import Distances
from streamdr.methods.mds.tiles import row_tiles


class DistanceProducts(AlignedArrays):
    """D2 V, where D2 holds squared distances, and the sum of the squares of D2.

    The product with a vector of ones contains the row sums.
    """

    kind: ClassVar[str] = "distance_products"
    allow_nan: ClassVar[bool] = False

    def __init__(self, distances: Distances, vectors: Array) -> None:
        self.distances = distances
        self.vectors = aligned(vectors)
        self.products = np.zeros(vectors.shape)
        self.squares = np.zeros(())

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        for tile in row_tiles(len(block.values), self.distances.n_points):
            squares = self.distances.between(block.values[tile])
            np.multiply(squares, squares, out=squares)
            products = squares @ self.vectors
            if not np.isfinite(products).all() or not np.isfinite(block.values[tile]).all():
                block.locate_nonfinite()
            self.products[block.numbers[tile]] += products
            self.squares += np.einsum("ij,ij->", squares, squares)

    def merge(self, later: Self) -> None:
        """Fold in the statistics of the rows that follow."""
        self.products += later.products
        self.squares += later.squares

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.distances, self.vectors)

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, which are part of the ledger's key."""
        return {**self.distances.parameters(), "vectors": self.vectors}

    def value(self) -> dict[str, Array]:
        """The products and the sum of squares."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"products": self.products, "squares": self.squares}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.products, self.squares = arrays["products"], arrays["squares"]
