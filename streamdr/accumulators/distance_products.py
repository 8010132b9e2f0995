"""Squared distances times a few vectors: how the eigenvectors of a matrix are found that is only streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamdr.accumulators.tiles import row_tiles
from streamdr.blocks import Array, Block, Settled, settled
from streamdr.distances import Distances


class DistanceProducts(Settled):
    """D2 V, row by row, where D2 holds the squares of distances; and the sum of all D2's squares.

    The product with a vector of ones has the sums of rows in it.
    """

    kind: ClassVar[str] = "distance_products"
    holes: ClassVar[bool] = False

    def __init__(self, distances: Distances, vectors: Array) -> None:
        self.distances = distances
        self.vectors = settled(vectors)
        self.products = np.zeros(vectors.shape)
        self.squares = np.zeros(())

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        for tile in row_tiles(len(block.values), self.distances.n_points):
            squares = self.distances.between(block.values[tile])
            np.multiply(squares, squares, out=squares)
            products = squares @ self.vectors
            if not np.isfinite(products).all() or not np.isfinite(block.values[tile]).all():
                block.suspect()
            self.products[block.numbers[tile]] += products
            self.squares += np.einsum("ij,ij->", squares, squares)

    def merge(self, later: Self) -> None:
        """Fold in what comes after."""
        self.products += later.products
        self.squares += later.squares

    def empty_like(self) -> Self:
        """A fresh one for the same vectors."""
        return type(self)(self.distances, self.vectors)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        return {**self.distances.parameters(), "vectors": self.vectors}

    def value(self) -> dict[str, Array]:
        """The products and the sum of squares."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"products": self.products, "squares": self.squares}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.products, self.squares = arrays["products"], arrays["squares"]
