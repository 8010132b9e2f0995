"""The sums over the rows of each unit: the sufficient statistics of a training step and of the errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csc_array

from streamdr.core.blocks import AlignedArrays, Array, Block, aligned, widen
from streamdr.methods.som.grid import Grid
from streamdr.methods.som.nearest import Search


class UnitSums(AlignedArrays):
    """For each unit, the weight of its rows and the sum of their differences from it; and the map's errors.

    A row belongs to its best matching unit. The step is linear in these sums, so the neighbourhood is applied
    after the pass. With `topographic`, rows whose two best units are not neighbours are counted too.
    """

    kind: ClassVar[str] = "som_units"
    allow_nan: ClassVar[bool] = False

    def __init__(
        self, codebook: Array, origin: Array, grid: Grid, *, double: bool = False, topographic: bool = False
    ) -> None:
        self.codebook = aligned(codebook)
        self.origin = aligned(origin)
        self.grid = grid
        self.double = double
        self.topographic = topographic
        self.weights = np.zeros(len(codebook))
        self.sums = np.zeros(codebook.shape)
        """Weighted sums of rows minus their unit."""
        self.errors = np.zeros(3)
        """Sums of distances, of their squares, and of the weights of rows with a topographic error."""
        self._searches: dict[np.dtype[Any], Search] = {}
        """By dtype of the rows. Shared by all accumulators of a pass: there is one copy per process."""

    @property
    def weight(self) -> float:
        """The total weight of the rows."""
        return float(self.weights.sum())

    @property
    def quantization_error(self) -> float:
        """The mean distance of a row from its unit."""
        return float(self.errors[0]) / self.weight

    @property
    def topographic_error(self) -> float:
        """The share of the rows whose two best matching units are not neighbours."""
        return float(self.errors[2]) / self.weight

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        values = block.values
        dtype = np.dtype(np.float64) if self.double else widen(values[:0]).dtype
        search, n_units = self._searching(dtype), len(self.codebook)
        weights, sums, errors = np.zeros(n_units), np.zeros(self.sums.shape), np.zeros(3)
        sound = True
        for tile in search.tiles(values):
            squares = np.einsum("ij,ij->i", tile.differences, tile.differences).astype(np.float64)
            sound = sound and bool(np.isfinite(squares).all())
            heavy = np.ones(len(squares)) if block.weights is None else block.weights[tile.rows]
            weights += np.bincount(tile.units, heavy, minlength=n_units)
            starts = np.arange(len(squares) + 1)
            members = csc_array((heavy.astype(dtype), tile.units, starts), shape=(n_units, len(squares)))
            sums += members @ tile.differences
            errors[:2] += heavy @ np.sqrt(squares), heavy @ squares
            if self.topographic and search.n_places > 1:
                errors[2] += heavy @ ~self.grid.are_neighbours(tile.units, tile.second())
        if not sound:
            block.locate_nonfinite()
        self._absorb(weights, sums, errors)

    def merge(self, later: Self) -> None:
        """Fold in the sums of the rows that follow."""
        self._absorb(later.weights, later.sums, later.errors)

    def _absorb(self, weights: Array, sums: Array, errors: Array) -> None:
        self.weights += weights
        self.sums += sums
        self.errors += errors

    def _searching(self, dtype: np.dtype[Any]) -> Search:
        search = self._searches.get(dtype)
        if search is None:
            search = self._searches[dtype] = Search(self.codebook, self.origin, dtype)
        return search

    def forget_searches(self) -> None:
        """Free the search structures of the codebook, in all accumulators of the pass."""
        self._searches.clear()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_searches": {}}  # rebuilt by the worker that receives it

    def empty_like(self) -> Self:
        """An empty accumulator for the same map."""
        fresh = type(self)(
            self.codebook, self.origin, self.grid, double=self.double, topographic=self.topographic
        )
        fresh._searches = self._searches
        return fresh

    def parameters(self) -> Mapping[str, Any]:
        """The parameters, for the key in the ledger. The grid matters to the topographic error only."""
        own = {"codebook": self.codebook, "origin": self.origin, "double": self.double}
        if not self.topographic:
            return own
        grid = self.grid
        return own | {
            "height": grid.height,
            "width": grid.width,
            "topology": grid.topology,
            "toroidal": grid.toroidal,
        }

    def value(self) -> dict[str, Array]:
        """Weights, sums and errors."""
        return {"weights": self.weights, "sums": self.sums, "errors": self.errors}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return self.value()

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.weights, self.sums, self.errors = arrays["weights"], arrays["sums"], arrays["errors"]
