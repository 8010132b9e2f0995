"""How far apart points are that are alike, less alike, and so on: what a monotone curve is fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial.distance import cdist

from streamdr.accumulators.stress import PairWeights
from streamdr.accumulators.tiles import row_tiles
from streamdr.bins import Bins
from streamdr.blocks import Array, Block, Settled, settled
from streamdr.distances import Distances


class BinnedDistances(Settled):
    """Weights of pairs, and sums of their distances in a configuration, by bins of their dissimilarities."""

    kind: ClassVar[str] = "binned_distances"

    def __init__(
        self,
        distances: Distances,
        embedding: Array,
        weights: PairWeights,
        edges: Array,
        *,
        holes: bool = False,
    ) -> None:
        self.distances = distances
        self.embedding = settled(embedding)
        self.weights = weights
        self.bins = Bins(edges)
        self.holes = holes
        self.counts = np.zeros(len(edges) + 1)
        self.totals = np.zeros(len(edges) + 1)

    def update(self, block: Block) -> None:
        """Fold one block of rows in."""
        for tile in row_tiles(len(block.values), self.distances.n_points):
            values, numbers = block.values[tile], block.numbers[tile]
            if np.isinf(values).any() or (not self.holes and np.isnan(values).any()):
                block.suspect()
            unlike = self.distances.between(values)
            weights = self.weights.of(unlike, numbers)
            reached = cdist(self.embedding[numbers], self.embedding)
            bins = self.bins.of(unlike.ravel())
            self.counts += np.bincount(bins, weights.ravel(), len(self.counts))
            reached *= weights
            self.totals += np.bincount(bins, reached.ravel(), len(self.counts))

    def merge(self, later: Self) -> None:
        """Fold in what comes after."""
        self.counts += later.counts
        self.totals += later.totals

    def empty_like(self) -> Self:
        """A fresh one for the same configuration."""
        return type(self)(self.distances, self.embedding, self.weights, self.bins.edges, holes=self.holes)

    def parameters(self) -> Mapping[str, Any]:
        """What tells two of them apart before any data."""
        given = {**self.distances.parameters(), **self.weights.parameters()}
        return {**given, "embedding": self.embedding, "edges": self.bins.edges, "holes": self.holes}

    def value(self) -> dict[str, Array]:
        """The sums."""
        return self.arrays()

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        return {"counts": self.counts, "totals": self.totals}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take up a saved state."""
        self.counts, self.totals = arrays["counts"], arrays["totals"]
